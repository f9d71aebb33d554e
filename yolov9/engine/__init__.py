"""Training, validation and detection. Importing this package does no work; its modules are imported by name."""
