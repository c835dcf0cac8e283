"""The front door over HTTP: the API, sign-in, the pages."""
