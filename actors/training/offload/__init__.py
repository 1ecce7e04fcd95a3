"""What waits in host memory or on disk instead of accelerator memory."""
