import numpy as np
import pytest

from yolov9.engine.metrics import ConfusionMatrix, average_precision_per_class, fitness, match_detections

LABELS = np.array([[0, 10, 10, 30, 30], [1, 50, 50, 90, 90]], np.float32)


def _detections(*rows):
    return np.array(rows, np.float32).reshape(-1, 6)


def test_a_label_goes_to_the_first_detection_that_claims_it_not_to_the_closest():
    table = match_detections(_detections([10, 10, 30, 34, 0.9, 0], [10, 10, 30, 30, 0.8, 0]), LABELS)
    # IoU of the first is 0.83: it keeps the label up to level 0.80, and the exact one has it above.
    assert table[0].tolist() == [True] * 7 + [False] * 3
    assert table[1].tolist() == [False] * 7 + [True] * 3


def test_another_class_matches_nothing():
    assert not match_detections(_detections([10, 10, 30, 30, 0.9, 1]), LABELS).any()


@pytest.mark.parametrize(("detections", "labels"), [(0, 2), (3, 0), (0, 0)])
def test_empty_sides_match_nothing(detections, labels):
    table = match_detections(np.zeros((detections, 6), np.float32), np.zeros((labels, 5), np.float32))
    assert table.shape == (detections, 10)
    assert not table.any()


def test_scores_do_not_depend_on_the_order_of_detections():
    generator = np.random.default_rng(0)
    correct = np.sort(generator.random((200, 10)) < 0.4, axis=1)[:, ::-1]
    scores, classes = generator.permutation(200) / 200, generator.integers(0, 3, 200)
    labels = generator.integers(0, 4, 90)
    order = generator.permutation(200)
    one = average_precision_per_class(correct, scores, classes, labels)
    other = average_precision_per_class(correct[order], scores[order], classes[order], labels)
    np.testing.assert_array_equal(one.average_precision, other.average_precision)
    assert (one.fitness, one.confidence) == (other.fitness, other.confidence)


def test_classes_without_labels_do_not_count():
    found = average_precision_per_class(np.zeros((2, 10), bool), np.array([0.9, 0.8]), np.array([5, 7]), np.array([5]))
    assert found.classes.tolist() == [5]


def test_a_class_without_detections_counts_as_zero():
    found = average_precision_per_class(np.ones((1, 10), bool), np.array([0.9]), np.array([0]), np.array([0, 1]))
    assert found.average_precision[:, 0].tolist() == pytest.approx([0.995, 0])
    assert found.map50 == pytest.approx(0.4975)


@pytest.mark.parametrize("labels", [0, 3])
def test_no_detections_at_all_score_zero(labels):
    none = np.zeros(0, np.float32)
    found = average_precision_per_class(np.zeros((0, 10), bool), none, none, np.zeros(labels))
    assert (found.mean_precision, found.mean_recall, found.map50, found.map50_95, found.fitness) == (0, 0, 0, 0, 0)


def test_fitness_is_mostly_map50_95():
    assert fitness(1.0, 0.5) == pytest.approx(0.55)


def test_confusion_counts_pairs_misses_and_false_alarms():
    matrix = ConfusionMatrix(3)
    matrix.add(_detections([10, 10, 30, 30, 0.9, 2], [60, 10, 70, 20, 0.8, 1], [50, 50, 90, 90, 0.25, 1]), LABELS)
    expected = np.zeros((4, 4))
    expected[2, 0] = 1  # class 0 seen as class 2
    expected[1, 3] = 1  # nothing there
    expected[3, 1] = 1  # its detection is not above 0.25
    np.testing.assert_array_equal(matrix.counts, expected)


def test_confusion_gives_a_label_to_the_closest_detection():
    matrix = ConfusionMatrix(2)
    matrix.add(_detections([10, 10, 30, 34, 0.9, 1], [10, 10, 30, 30, 0.8, 0]), LABELS[:1])
    assert matrix.counts[0, 0] == 1
    assert matrix.counts[1, 2] == 1


def test_confusion_counts_false_alarms_in_pictures_without_labels():
    matrix = ConfusionMatrix(2)
    matrix.add(_detections([10, 10, 30, 30, 0.9, 1]), LABELS[:0])
    assert matrix.counts[1, 2] == 1
