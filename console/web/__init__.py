"""The web server of the console, and the checks, sign-in and limits of its requests."""
