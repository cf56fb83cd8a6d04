"""What is optimised: objectives, their search spaces and the sources of their data. Imports no other package of ours.

How an evaluation is limited, timed and repeated belongs in `workers`; how a campaign file names an objective belongs in
`orchestrator.settings`.
"""
