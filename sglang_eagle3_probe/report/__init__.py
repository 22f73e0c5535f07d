"""Reports made of evidence and results. Only this folder and cli/ print."""
