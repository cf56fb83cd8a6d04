"""The live page: the report's page, kept up to date from the logs of running campaigns."""
