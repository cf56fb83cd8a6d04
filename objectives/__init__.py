"""What is optimised: objectives, their search spaces and where their data come from. Imports nothing of ours.

How an evaluation is limited, timed and repeated belongs in `workers`; how a campaign file names an objective belongs in
`orchestrator.settings`.
"""
