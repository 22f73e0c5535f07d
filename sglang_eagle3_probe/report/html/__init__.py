"""The report as one HTML file: no request to any host, readable with scripts switched off."""
