"""`plimsoll quota`: what is promised."""

from plimsoll.cli.quota.app import app as app
