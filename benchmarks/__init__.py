"""What a delegation costs, as ratios that are measured in one run."""
