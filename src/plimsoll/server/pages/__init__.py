"""Pages: each module gathers what one page shows, from the same answers that the API gives."""
