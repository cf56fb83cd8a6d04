# Kill the campaign once with SIGKILL, and resume it.
timeout --signal=KILL 25 bbkb run bbkb.yaml --run bbkb --or-resume
sleep 10  # the Ray of the killed command ends within a few seconds
bbkb run bbkb.yaml --run bbkb --or-resume
bbkb verify runs/bbkb
