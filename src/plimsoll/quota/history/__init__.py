"""What was, and what would have been: promises kept, and policies replayed on recorded health."""
