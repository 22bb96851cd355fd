"""What is known of the program, whoever runs it: measures with tests, attacks with figures.

Tests are named as in the repository, figures as docs/threat-model.md has them; tests hold both to
what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedtopics.report.dpia_records import Records


@dataclass(frozen=True)
class Measure:
    """What the program does, for which principle or requirement, and the tests that show it."""

    serves: str
    what: str
    tests: Sequence[str]
    holds: Callable[[Records], bool] = lambda records: True  # whether it does in this study


@dataclass(frozen=True)
class Attack:
    """What somebody can learn although all works as planned, with the figure of an experiment."""

    who: str
    what: str
    figure: str  # as docs/threat-model.md has it
    command: str
    less_by: str  # what makes it harder
    holds: Callable[[Records], bool] = lambda records: True


CONTROL = (
    "Beside the study's topics stands a control without documents: what public words and the "
    "encoder give by themselves. On newsgroups its coherence (NPMI) was .193, where k-means at "
    "epsilon 3 had .227: the rest is what documents told."
)
CONTROL_SOURCE = "benchmarks/results/private.md, on other documents than these"


def _masked(records: Records) -> bool:
    return records.masked


def _private(records: Records) -> bool:
    return records.private and _apart(records) and not records.seeded


def _by_words(records: Records) -> bool:
    return not records.private


def _seen(records: Records) -> bool:
    return not records.masked


def _apart(records: Records) -> bool:
    return records.place != "simulation"


def _by(*methods: str) -> Callable[[Records], bool]:
    """Say whether the study runs one of these methods, without noise in its sums."""
    return lambda records: not records.private and records.study.method.method_name in methods


MINIMISATION, CONFIDENTIALITY = "Data minimisation", "Integrity and confidentiality"
DESIGN, SECURITY = "Data protection by design and by default", "Security of processing"
TRANSPARENCY, ACCOUNTABILITY = "Transparency", "Accountability"

MEASURES = (
    Measure(
        MINIMISATION,
        "No message asks a client for anything: its own program computes what leaves, by the "
        "study's schedule.",
        ["test_no_frame_asks_for_anything"],
        _apart,
    ),
    Measure(
        MINIMISATION,
        "A reply that sums over fewer documents than the client's policy says does not leave.",
        ["test_door_refuses_too_few_documents"],
    ),
    Measure(
        MINIMISATION,
        "A word that fewer documents have than the policy says is not named, nor counted in any "
        "reply.",
        [
            "test_door_refuses_a_rare_word",
            "test_a_rare_word_of_a_document_changes_no_bit_of_a_reply",
            "test_no_word_leaves_that_its_client_did_not_name",
        ],
        _by_words,
    ),
    Measure(
        MINIMISATION,
        "Words are a public list, so that none is named of a document; a document that is there "
        "several times counts once.",
        ["test_a_document_again_changes_nothing"],
        lambda records: records.private,
    ),
    Measure(
        MINIMISATION,
        "The client counts the rounds that it answers, over all runs of the study, and ends at "
        "the policy's limit.",
        ["test_rounds_that_the_ledger_has_count", "test_attempts_count_as_rounds"],
    ),
    Measure(
        TRANSPARENCY,
        "Before it joins, each client is shown the study's purpose and what each exchange sends.",
        ["test_the_offer_and_the_report_say_what_the_study_is_for"],
        _apart,
    ),
    Measure(
        ACCOUNTABILITY,
        "A line is written to the ledger before each reply leaves: what, when, how much, its "
        "SHA-256; no values.",
        ["test_ledger_line", "test_ledger_holds_no_values"],
    ),
    Measure(
        ACCOUNTABILITY,
        "Lines are chained by digests, and signed where the client has a certificate: what is "
        "changed, moved or cut off is found by fedtopics verify.",
        [
            "test_any_byte_of_any_line",
            "test_each_line_that_is_taken_out_put_in_again_or_moved",
            "test_lines_that_are_cut_off_at_the_end",
        ],
    ),
    Measure(
        DESIGN,
        "Which documents a reply is of follows from a secret that does not leave the client.",
        [
            "test_rounds_and_the_seed_do_not_tell_documents",
            "test_every_purpose_number_client_and_seed_has_draws_of_its_own",
        ],
        lambda records: _apart(records) and not records.seeded,
    ),
    Measure(
        DESIGN,
        "Replies are masked: whoever adds sees what at least three clients add up to, no single "
        "reply; all check that the total is that sum.",
        ["test_no_reply_is_seen", "test_two_inputs_of_one_sum_look_the_same", "test_a_false_total"],
        _masked,
    ),
    Measure(
        DESIGN,
        "Whoever adds, if it is no client, learns the agreed words and no others by name.",
        ["test_who_adds_hears_the_agreed_words_alone"],
        lambda records: _masked(records) and _by_words(records),
    ),
    Measure(
        DESIGN,
        "A document, or all of an author, moves each sum by a vector of length 1 at most; noise "
        "that is measured in it is added by the clients, before masks.",
        [
            "test_a_document_more_changes_each_release_by_one_at_most",
            "test_an_author_more_changes_each_release_by_one_at_most",
            "test_all_that_leaves_has_noise",
            "test_who_adds_cannot_leave_out_clients_whose_noise_is_needed",
        ],
        _private,
    ),
    Measure(
        CONFIDENTIALITY,
        "Whoever is told another total than the others stops before it answers.",
        ["test_different_totals_to_two_clients"],
        _apart,
    ),
    Measure(
        CONFIDENTIALITY,
        "What is written to disk can be read by its owner alone.",
        ["test_a_server_and_its_clients", "test_a_simulation_and_its_report"],
    ),
    Measure(
        SECURITY,
        "Everything travels in TLS between certificates of the study's own authority; with "
        "--insecure, which is for one machine, it does not.",
        ["test_nothing_readable_travels", "test_no_certificate"],
        _apart,
    ),
    Measure(
        SECURITY,
        "A run that is interrupted goes on, and no reply leaves twice with other content.",
        ["test_a_moment_is_answered_again_with_the_same_bytes_and_no_others"],
    ),
    Measure(
        SECURITY,
        "What comes from others is measured and checked before anything is made of it; no code "
        "travels.",
        ["test_mutated_frames_never_break_the_reader", "test_no_code_travels"],
        _apart,
    ),
)

ATTACKS = (
    Attack(
        "whoever adds up, from one reply of one client",
        "words of the documents of a minibatch, and whole documents",
        "10 of 10 documents wholly",
        "benchmarks/attacks/one_reply.py",
        "masks (three clients, and not secure = false); more documents a reply (min_documents, "
        "batch_size)",
        lambda records: _seen(records) and _by("gfedntm", "lda", "auto")(records),
    ),
    Attack(
        "all participants and whoever adds up, from the totals of many rounds",
        "documents of a client that has fewer of them than there are rounds of minibatches",
        "100 of 100 exactly",
        "benchmarks/attacks/blind.py",
        "fewer rounds than the smallest client has documents (max_rounds); full passes",
        _by("lda", "auto"),
    ),
    Attack(
        "whoever adds up, from sums of clusters",
        "embeddings of single texts, which much of a text can be read from",
        "1 of 400 embeddings",
        "benchmarks/attacks/pairs_of_sums.py",
        "fewer starts; larger min_documents",
        _by("kmeans"),
    ),
    Attack(
        "all participants",
        "the first words of each topic of each client, by the client's name",
        "seen by all participants",
        "the method sends it: fedtopics ledger RUN",
        "another method, whose replies are summed",
        _by("flda"),
    ),
)
