"""What runs as the container's first process: reads the machine, plans the job, starts it and explains how it ended."""
