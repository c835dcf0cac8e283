"""A plan told to those whom it is about: calendars, a page, a picture, tables, chat, silences."""
