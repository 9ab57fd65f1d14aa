"""Model sources: names of libraries, factories of users, files, designs and existing modules."""
