"""What only looks. One tap per file; each takes the session and gives handlers for seams."""
