"""Search: hybrid recall from a query to ranked memories."""
