"""Where a job's GPU time went. Pure."""
