"""What went wrong, who is hurt, and whom we told: incidents, notices to owners, posts to a chat."""
