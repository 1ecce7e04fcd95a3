"""What users import: the client and the command line."""
