"""Commands on who may call: tokens of programs, links and users for people."""
