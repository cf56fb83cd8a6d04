"""What is optimised: objectives, their search spaces and where their data come from. Imports nothing of ours."""
