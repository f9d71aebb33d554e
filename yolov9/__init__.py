"""YOLOv9 object detector: models, loss, data, training and inference. Importing this package does no work."""

__version__ = "0.1.0"
