"""The cluster's network as one stable model, whatever it was read from."""
