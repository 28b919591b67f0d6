"""What TITLE's parsers accept, and what of a reply is made into it."""
