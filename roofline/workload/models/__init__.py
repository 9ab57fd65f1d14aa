"""Where models come from: names of libraries, factories of users, modules that exist."""
