# Kill the campaign twice with SIGKILL. The third command finishes it.
for kill in 1 2; do
    timeout --signal=KILL 20 bbkb run cnn.yaml --run cnn --or-resume
    sleep 10  # the Ray of the killed command ends within a few seconds
done
bbkb run cnn.yaml --run cnn --or-resume
bbkb verify runs/cnn
