"""The comparison with other projects is complete, and an existing test shows each feature that bbkb
has."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "comparison.md").read_text(encoding="utf-8")
TABLE = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
ROWS = TABLE[2:]
FILES = {
    str(file.relative_to(REPOSITORY / "tests")): file.read_text(encoding="utf-8")
    for file in (REPOSITORY / "tests").rglob("test_*.py")
}
DEFINITION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
TESTS = {*FILES, *(name for text in FILES.values() for name in DEFINITION.findall(text))}
# a feature of bbkb: the test that shows it, or the file below tests/ if all of its tests do
# fmt: off
SHOWN_BY = {
    "Ask and tell, without a runner":
        "test_optimizer_finds_a_good_configuration_among_appended_candidates",
    "Ask and tell can be saved and continues exactly": "test_saved_optimizer_continues_exactly",
    "A Python function is tuned in one call":
        "test_closure_is_tuned_and_its_best_trial_has_the_least_value",
    "One trial trains on several machines": "workers/gangs/test_ranks.py",
    "Trials on several machines cannot wait for each other without end":
        "workers/gangs/test_trainers.py",
    "A shell command or script of any language is tuned": "objectives/test_command.py",
    "A campaign is a file, checked with file and line": "orchestrator/settings/test_schema.py",
    "Check everything without running":
        "test_dry_run_shows_budget_workers_and_store_and_writes_nothing",
    "Real, whole, log, stepped, categorical and ordered parameters":
        "objectives/test_parameters.py",
    "Conditional parameters": "test_candidates_satisfy_conditions_and_forbidden_clauses",
    "Forbidden combinations or constraints on parameters": "test_clause_can_compare_two_parameters",
    "Spaces of ConfigSpace are read":
        "test_candidates_of_a_conditional_space_are_valid_for_configspace",
    "Configurations to evaluate first": "test_enqueued_configurations_are_the_first_trials",
    "Earlier results as a start":
        "test_study_is_existing_data_and_trials_outside_the_space_are_counted",
    "Gaussian-process search": "test_rewards_of_another_scale_and_shift_give_the_same_picks",
    "Other searches": "test_suggestions_equal_those_of_the_sampler_in_a_separate_study",
    "Model cost with thousands of results":
        "test_screened_picks_equal_eager_ones_on_a_real_table_from_few_arms",
    "A setting with a proven regret bound":
        "test_rules_bound_the_drift_and_the_local_one_is_below_the_global_one",
    "Candidates are a table": "objectives/test_tabular.py",
    "Asynchronous parallel evaluations":
        "test_bbkb_never_waits_and_ends_when_every_arm_was_chosen_once",
    "Cluster of several machines": "workers/on_ray/test_places.py",
    "Writes the Slurm script; survives time limits and preemption":
        "test_preempted_campaign_on_three_nodes_is_requeued_and_finishes",
    "Writes Kubernetes manifests":
        "test_results_outlive_the_pods_and_a_retried_job_resumes",
    "The number of workers follows nodes that join and leave":
        "test_slots_follow_the_capacity_of_the_cluster",
    "CPUs, GPUs and memory of an evaluation": "workers/on_ray/test_places.py",
    "Resources that depend on the trial": "test_trials_get_the_gpus_that_they_request",
    "Several campaigns share one cluster fairly":
        "test_campaigns_share_the_slots_equally_and_the_last_one_gets_all",
    "Results are durable in a database before they are acted on":
        "test_killed_postgresql_server_loses_no_committed_event",
    "Resume after a crash, decisions not repeated":
        "test_campaign_killed_repeatedly_makes_the_decisions_of_an_undisturbed_one",
    "Running evaluations survive the death of the coordinator":
        "test_killed_actor_restarts_and_no_evaluation_runs_twice",
    "Two coordinators cannot corrupt a run":
        "test_writer_that_was_fenced_off_stops_without_writing",
    "Retries by the kind of failure":
        "test_out_of_memory_is_retried_with_more_memory_if_configured",
    "The search avoids a region whose evaluations fail":
        "test_failing_region_is_left_although_rewards_rise_towards_it",
    "Time-outs and memory limits of an evaluation": "workers/test_evaluate.py",
    "Checkpoints of a trial, kept for further attempts":
        "test_killed_evaluation_continues_from_its_checkpoint_and_its_curve_has_no_gap",
    "Population-based training": "orchestrator/test_population.py",
    "Early stopping (ASHA, median)": "test_median_rule_stops_the_worse_half",
    "Model-based multi-fidelity (BOHB, MOBSTER)":
        "test_forecast_stops_new_trials_but_not_continued_ones",
    "The campaign ends when no improvement is expected":
        "test_expected_gain_stops_after_its_patience",
    "The campaign ends at a target value or after a time":
        "test_target_stops_the_campaign_after_running_evaluations",
    "Several objectives": "test_front_has_the_feasible_trials_that_none_dominates",
    "Constraints on outcomes": "test_pulls_concentrate_where_the_constraint_holds",
    "Live page": "test_page_follows_a_campaign_and_survives_a_restart_of_the_server",
    "Report in one file without a network": "orchestrator/report/test_page.py",
    "Parameter importance": "test_importance_ranks_the_parameters_as_the_objective_does",
    "Compare runs, notes and tags": "test_list_finds_runs_by_tags_of_the_file_and_added_tags",
    "Callbacks for training libraries (Keras, Lightning, XGBoost)":
        "test_training_stopped_and_continued_reports_as_without_a_stop",
    "Callbacks from Python": "test_error_in_a_callback_is_raised_and_loses_nothing",
    "Watch and stop a running campaign from another terminal":
        "test_live_run_is_locked_watched_and_stopped_from_another_process",
    "Notifications at the end or after a failure":
        "test_webhook_gets_the_first_failure_and_the_end_once_each",
    "Export": "test_run_exported_to_a_study_and_imported_again_gives_the_same_results",
    "Metrics and alerts for Prometheus": "test_ray_exports_the_campaigns_figures_for_prometheus",
    "Each choice can be explained and repeated": "test_replay_repeats_every_choice_and_draw",
    "Checksums of the log, and an audit of it":
        "test_verify_reports_an_impossible_log_with_the_position",
    "Simulated time, for benchmarks": "workers/test_simulated.py",
    "Notebooks: progress and rich display": "test_notebook_shows_progress_and_tables",
    "Its search works inside the other projects": "test_tune_runs_and_restores_an_experiment",
    "Place of the data": "test_run_writes_and_shows_no_password",
}
# fmt: on


def test_comparison_has_an_entry_for_each_project() -> None:
    assert len(ROWS) >= 40
    assert [row for row in ROWS if len(row) != len(TABLE[0]) or not all(row)] == []


def test_comparison_names_a_test_for_each_feature_of_bbkb_and_no_other() -> None:
    present = {row[0] for row in ROWS if not row[1].startswith(("no", "not"))}
    assert set(SHOWN_BY) == present


@pytest.mark.parametrize("test", SHOWN_BY.values(), ids=list(SHOWN_BY))
def test_comparison_names_existing_tests(test: str) -> None:
    assert test in TESTS
