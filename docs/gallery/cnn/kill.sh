# Kill the campaign twice with SIGKILL. The third command finishes it.
timeout --signal=KILL 60 bbkb run cnn.yaml --run cnn --or-resume
timeout --signal=KILL 60 bbkb run cnn.yaml --run cnn --or-resume
bbkb run cnn.yaml --run cnn --or-resume
bbkb verify runs/cnn
