"""A text task: sentences of film reviews, good or bad, over ten clients, through MiniLM and one spectral message each.

    pip download vaderSentiment==0.5 --no-deps --no-binary :all:
    python benchmarks/text.py vaderSentiment-0.5.zip NETWORKS --sentences 1500

The source package of vaderSentiment 0.5 (MIT) carries 10,605 sentences of Pang and Lee's film reviews, each with the
mean of twenty people's ratings (Hutto and Gilbert 2014); above 0 is good, below bad. A random part of them is used, two
thirds for training, divided among ten clients by Dirichlet(0.5) over labels. NETWORKS has minilm.onnx and its tokeniser
(examples/backbones/minilm.py). The peer is logistic regression on bags of words, with all training sentences in one
place: words or tf-idf of words and pairs, and the inverse regularisation, by cross-validation on training sentences.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

import coreshot
from coreshot.data.partition import Dirichlet
from coreshot.data.schema import Table
from coreshot.frozen.files import FOLDER
from coreshot.study.file import parse_study
from coreshot.wire.messages import decode_message

ARCHIVE = "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz"
SENTENCES = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
CLASSES = ("bad", "good")


def read_sentences(path):
    with zipfile.ZipFile(path) as source, tarfile.open(fileobj=io.BytesIO(source.read(ARCHIVE))) as archive:
        text = archive.extractfile(SENTENCES).read().decode("utf-8", "replace")
    rows = list(csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row[2].strip() for row in rows], np.asarray([float(row[1]) > 0 for row in rows]).astype(int)


def make_study(networks):
    digest = {name: hashlib.sha256((networks / name).read_bytes()).hexdigest() for name in os.listdir(networks)}
    embedding = {
        "file": "minilm.onnx",
        "sha256": digest["minilm.onnx"],
        "tokenizer": "minilm-tokenizer.json",
        "tokenizer_sha256": digest["minilm-tokenizer.json"],
        "output": "sentence",
        "dimension": 384,
        "scale": 0.051,
    }
    said = ", ".join(f"{key} = {json.dumps(value)}" for key, value in embedding.items())
    return parse_study(
        f"""
        format = 1
        name = "film reviews"
        task = "classification"
        [target]
        name = "rating"
        classes = ["bad", "good"]
        [table]
        missing = "refuse"
        [[table.column]]
        name = "sentence"
        kind = "text"
        embedding = {{ {said} }}
        [method]
        name = "spectral"
        max_bytes = 100_000
        features = {{ name = "identity", dimension = 384 }}
        """,
        "text.py",
    ).study


def quality(probabilities, y):
    own = np.maximum(probabilities[np.arange(len(y)), y], 1e-300)
    return f"accuracy {np.mean(np.argmax(probabilities, axis=1) == y):.3f}, NLL {-np.mean(np.log(own)):.3f}"


def bag_of_words(texts, y, test):
    pipeline = Pipeline([("words", CountVectorizer()), ("head", LogisticRegression(max_iter=1000))])
    choices = {
        "words": [
            CountVectorizer(binary=True),
            TfidfVectorizer(sublinear_tf=True),
            TfidfVectorizer(ngram_range=(1, 2)),
        ],
        "head__C": [0.1, 1.0, 10.0],
    }
    found = GridSearchCV(pipeline, choices, scoring="neg_log_loss", cv=5).fit(texts, y)
    return found.predict_proba(test)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("networks", type=Path)
    parser.add_argument("--sentences", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ[FOLDER] = str(given.networks)
    texts, y = read_sentences(given.archive)
    chosen = np.random.default_rng(given.seed).permutation(len(y))[: given.sentences]
    texts, y, cut = [texts[row] for row in chosen], y[chosen], len(chosen) * 2 // 3
    print(f"{cut} training and {len(y) - cut} test sentences, {np.mean(y[cut:]):.3f} of these good", flush=True)
    print("bags of words, pooled:", quality(bag_of_words(texts[:cut], y[:cut], texts[cut:]), y[cut:]), flush=True)

    study = make_study(given.networks)
    assert isinstance(study.inputs, Table)
    x, _ = study.inputs.encode({"sentence": texts}, "text.py")
    method, model, key = study.one_round, study.model, study.shared_key
    partition = Dirichlet(num_partitions=10, alpha=0.5, min_partition_size=10, seed=given.seed)
    replies, sizes = {}, []
    for name, rows in partition.partition({"label": y[:cut]}).items():
        data = coreshot.distill(study, x[rows], y[rows], client=str(name))
        sizes.append(len(data))
        replies[str(name)] = study.read(str(name), decode_message(data, study_hash=study.hash, client=str(name)))
    state = method.receive(key, model, method.init(key, model, key), replies)
    posterior, _ = method.posterior(key, model, state)
    found = quality(posterior.predict(x[cut:]).mean, y[cut:])
    print(f"MiniLM, {len(replies)} clients, one message of at most {max(sizes):,} bytes: {found}")


if __name__ == "__main__":
    main()
