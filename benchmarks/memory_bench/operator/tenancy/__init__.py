"""What tenants of one operator may rely on: consent that ends when it is withdrawn, and others that do no harm."""
