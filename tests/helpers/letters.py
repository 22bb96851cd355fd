"""Letters to five offices of a city over two years: made up, skewed, dated, for reports to show."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedtopics import Study, train

THEMES = {
    "Heating": "radiator boiler heating cold flat thermostat pipe landlord winter valve burner",
    "Parking": "parking permit car garage fine meter resident kerb spaces towed visitor",
    "Playgrounds": "playground swing slide sand children bench fence climbing broken seesaw",
    "Waste": "waste bin collection recycling paper glass compost sorting smell container plastic",
    "Noise": "noise music loud night bar neighbour police complaint shouting terrace quiet",
    "Schools": "school pupil teacher classroom lunch holiday lesson place enrolment canteen",
    "Buses": "bus stop timetable driver late delay ticket tram route crowded line transfer",
    "Trees": "tree branch oak pruning root shade leaves felled chestnut trunk planted",
    "Floods": "flood cellar rain drain pump sewer water sandbag dike storm damage",
    "Market": "market stall vendor fruit cheese square licence saturday flowers bakery",
    "Quay fees": "quay berth mooring crane vessel tonnage pilot dock cargo customs tide",
    "Vineyards": "vineyard grape harvest slope cellarman wine terraces pressing frost barrel",
}
# How much of each office's letters a theme is, beside what all write about.
HABITS = {
    "north": {"Heating": 4.0, "Schools": 3.0, "Noise": 1.0},
    "south": {"Vineyards": 4.0, "Trees": 2.5, "Market": 1.5},
    "east": {"Buses": 4.0, "Parking": 3.0, "Heating": 1.5},
    "west": {"Playgrounds": 3.5, "Waste": 2.5, "Schools": 1.5},
    "harbour": {"Quay fees": 6.0, "Floods": 2.0, "Buses": 1.0},
}
OWN = {"Quay fees": "harbour", "Vineyards": "south"}
SIZES = {"north": 900, "south": 760, "east": 620, "west": 540, "harbour": 400}
GROWTH = {"Floods": 2.2, "Heating": 1.5, "Parking": 0.45, "Noise": 0.8}  # of 2025, to 2024
FILLERS = "street office letter asked please answer year week city reply wrote hope"
ABOUT = {
    "purpose": "To see what residents write about, and where help is asked for most",
    "operator": "City of Elms, office of statistics",
    "recipients": ["the city council"],
    "retention": "two years",
    "contact": "statistics@elms.example",
}
TEXTS = "text", "written"  # columns


def write_letters(folder: Path, seed: int = 0, part: float = 1.0) -> Mapping[str, Path]:
    rng = np.random.default_rng(seed)
    names = list(THEMES)
    paths = {}
    for client, size in SIZES.items():
        path = paths[client] = folder / f"{client}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(TEXTS)
            for _ in range(round(part * size)):
                day = int(rng.integers(0, 731))
                weights = np.array([weight(client, name, day) for name in names])
                first, second = rng.choice(names, 2, p=weights / weights.sum())
                words = [*rng.choice(THEMES[first].split(), 14), *rng.choice(FILLERS.split(), 5)]
                words += [*rng.choice(THEMES[second].split(), 5)]
                date = np.datetime64("2024-01-01") + day
                rows.writerow([" ".join(rng.permutation(words)), str(date)])
    return paths


def weight(client: str, theme: str, day: int) -> float:
    """How much an office's letters of a day since 2024 began are about a theme."""
    if OWN.get(theme, client) != client:
        return 0.0
    grown: float = GROWTH.get(theme, 1.0) ** (day / 365)
    return (0.5 + HABITS[client].get(theme, 0.0)) * grown


def letters_run(folder: Path, part: float = 1.0) -> Path:
    files = write_letters(folder, part=part)
    clients = {name: {"data": str(path), "time": "written"} for name, path in files.items()}
    method = {"name": "nmf", "n_components": len(THEMES)}
    study = Study.make(
        name="Letters to the city",
        about=ABOUT,
        method=method,
        vocabulary={"min_clients_per_word": 1},  # words of OWN are one office's alone
        clients=clients,
    )
    model = train(study, out=folder / "run")
    labels = {}
    for topic, words in enumerate(model.topics(5)):
        labels[topic] = max(THEMES, key=lambda name: len({*words} & {*THEMES[name].split()}))
    some = dict(list(labels.items())[:9])  # of the others there are words alone
    model.with_labels(some).save_pretrained(folder / "run" / "model")
    return folder / "run"
