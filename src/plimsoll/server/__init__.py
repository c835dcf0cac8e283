"""The outside's way in: HTTP. So far signals only; the API and the pages come here."""
