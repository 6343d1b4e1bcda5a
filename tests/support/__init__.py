"""What tests share with one another and with the benchmarks. Nothing here imports a benchmark."""
