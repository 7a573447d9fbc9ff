"""What commands print for people: tables, times, colours; a pager, a watched screen, a sign of progress."""
