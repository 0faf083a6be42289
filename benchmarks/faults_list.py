"""The numbered list of faults, and the fast tests that inject them in `make test`.

faults.py runs the cases of every number as whole commands; docs/reliability.md shows both (faults_page.py).
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    title: str
    tests: tuple[str, ...]  # file of tests/ :: name, or the beginning of the name
    note: str = ""  # what does not apply or is not covered


CHECKPOINT, RESUME, KILL = "training/test_checkpoint.py", "training/test_resume.py", "training/test_kill.py"
OPERATION, BAD_INPUT = "serving/test_operation.py", "serving/test_bad_input.py"
FAULTS = {
    1: Fault("SIGKILL inside a save", (f"{KILL}::test_every_state_that_a_kill_can_leave_is_good",)),
    2: Fault(
        "SIGKILL at random moments",
        (
            f"{KILL}::test_kills_at_random_moments_lose_no_checkpoint",
            f"{RESUME}::test_a_run_killed_three_times_ends_with_identical_weights",
            "contracts/test_tasks.py::test_a_killed_and_continued_run_equals_an_uninterrupted_one",
        ),
        "A training loss in metrics.jsonl is the mean over the updates since the last report, or since the run was resumed if "
        "that was later. Weights do not depend on it.",
    ),
    3: Fault(
        "Signals to stop",
        (
            "training/test_signals.py::test_a_signal_during_training_saves_and_exits_with_75",
            "training/test_signals.py::test_a_signal_during_preparation_exits_with_75_and_a_message",
            f"{RESUME}::test_sigterm_saves_and_exits_with_75_and_the_same_command_continues",
            "cli/test_process.py::test_a_signal_ends_any_command_with_a_message_and_75",
        ),
    ),
    4: Fault(
        "Full and failing disks",
        (
            f"{CHECKPOINT}::test_a_full_disk_is_detected_before_anything_is_written",
            f"{CHECKPOINT}::test_a_failing_disk_leaves_the_old_checkpoint_and_no_temporary_files",
            f"{CHECKPOINT}::test_an_incomplete_write_leaves_the_old_checkpoint_and_no_temporary_files",
            "training/test_logs.py::test_a_file_size_limit_stops_the_run_and_keeps_its_checkpoint",
            "storage/test_folders.py::test_a_folder_that_cannot_be_removed_is_one_sentence",
        ),
    ),
    5: Fault(
        "Damaged files of a checkpoint",
        (
            f"{CHECKPOINT}::test_every_changed_byte_is_detected",
            f"{CHECKPOINT}::test_the_error_names_a_missing_truncated_or_empty_file",
            f"{RESUME}::test_damage_is_detected_and_the_previous_checkpoint_used",
        ),
    ),
    6: Fault(
        "Missing, stale and foreign manifests",
        (
            f"{CHECKPOINT}::test_a_renamed_or_newer_checkpoint_is_refused",
            "training/test_retention.py::test_if_none_verifies_all_are_reported_and_none_deleted",
            "runs/test_loading.py::test_a_checkpoint_of_another_run_is_reported_and_not_used",
        ),
    ),
    7: Fault(
        "Clocks, links, permissions, a second process",
        (
            f"{RESUME}::test_two_processes_cannot_train_in_one_run_folder",
            "training/test_unreadable_folder.py::test_what_cannot_be_read_is_one_sentence_and_nothing_is_written",
            "training/test_signals.py::test_renaming_the_run_folder_during_training_is_an_error",
        ),
    ),
    8: Fault(
        "Non-finite values",
        (
            "training/test_diverged_weights.py::test_a_run_with_one_nan_ends_with_its_last_good_checkpoint",
            "training/test_diverged_weights.py::test_inference_with_diverged_weights_is_refused",
            f"{RESUME}::test_a_diverging_run_exits_with_5_and_keeps_its_last_good_checkpoint",
            "training/test_options.py::test_a_metric_that_is_not_a_number_is_worse_than_every_number",
        ),
        "Updates are skipped; training does not return to an earlier checkpoint by itself.",
    ),
    9: Fault(
        "Out of memory",
        (
            f"{RESUME}::test_a_batch_that_does_not_fit_is_split_and_recorded_with_the_same_gradient",
            f"{RESUME}::test_a_validation_that_fails_costs_no_update",
            "cli/test_commands.py::test_full_memory_is_not_reported_as_a_bug",
        ),
        "A validation after the last update is repeated from the checkpoint before it.",
    ),
    10: Fault(
        "Lost, slow and hanging ranks",
        (
            "training/test_ranks.py::test_a_killed_process_is_replaced_and_the_weights_have_the_same_bits",
            "training/test_ranks.py::test_a_run_continues_with_another_number_of_processes",
            "training/test_ranks.py::test_a_signal_to_one_process_stops_all_after_saving",
            "training/test_ranks.py::test_a_nonfinite_loss_on_one_process_skips_the_update_on_all",
            "training/test_ranks.py::test_a_process_killed_while_all_save_their_parts_leaves_the_checkpoint_before",
            "training/test_ranks.py::test_a_stopped_process_is_named_and_replaced",
            "training/test_heartbeats.py::test_a_rank_that_does_not_count_is_lost",
        ),
        "While a rank prepares data or validates, the others wait as long as its heartbeat lasts.",
    ),
    11: Fault(
        "Data that is invalid or changes",
        (
            "data/test_broken_files.py::test_a_broken_file_has_its_message",
            "cli/test_broken_data.py::test_a_run_whose_data_changed_is_not_modified",
            "cli/test_broken_data.py::test_invalid_lines_are_counted_reported_and_skipped",
            "contracts/test_tasks.py::test_an_unusable_line_is_a_data_error_with_file_and_line",
            "data/test_encode_shards.py::test_the_shard_of_a_killed_worker_is_encoded_by_a_new_one",
        ),
    ),
    12: Fault(
        "Positions and changes when resuming",
        (
            f"{RESUME}::test_raising_steps_continues_to_identical_weights",
            f"{RESUME}::test_a_different_config_is_refused_and_the_difference_shown",
        ),
    ),
    13: Fault(
        "Asynchronous saving",
        (
            "training/test_ranks.py::test_a_killed_process_is_replaced_and_the_weights_have_the_same_bits",
            "training/test_ranks.py::test_a_signal_to_one_process_stops_all_after_saving",
        ),
    ),
    14: Fault(
        "Hostile checkpoints and configs",
        (
            f"{CHECKPOINT}::test_an_invalid_header_is_refused_even_with_a_matching_manifest",
            f"{CHECKPOINT}::test_paths_outside_the_folder_are_refused",
            "training/test_tensor_parts.py::test_missing_repeated_and_different_parts_are_an_error",
            "training/test_tensor_parts.py::test_offsets_that_are_not_rows_are_an_error",
            "storage/test_reading.py::test_a_line_without_end_is_refused_before_memory_runs_out",
        ),
        "Checkpoints hold no pickles, and none is ever loaded.",
    ),
    15: Fault(
        "Tokenizers that do not belong to the weights",
        (
            "runs/test_loading.py::test_altered_files_are_an_error_in_every_command",
            "runs/test_damaged_run.py::test_every_command_has_the_same_message",
        ),
    ),
    16: Fault(
        "Trackers, logs and standard streams",
        (
            "training/test_trackers.py::test_a_server_that_cannot_be_reached_is_one_warning",
            "training/test_progress.py::test_training_finishes_when_stderr_cannot_be_written",
            "cli/test_process.py::test_a_failing_stream_is_one_message_and_an_exit_code",
        ),
    ),
    17: Fault(
        "Clients of the server",
        (
            f"{OPERATION}::test_overload_is_refused_and_what_was_accepted_is_answered",
            f"{OPERATION}::test_sigterm_loses_no_accepted_request",
            f"{BAD_INPUT}::test_a_wrong_body_is_a_clear_error_and_disturbs_no_one",
            f"{BAD_INPUT}::test_a_body_that_arrives_too_slowly_is_refused",
            "serving/test_worker.py::test_a_wrong_input_fails_only_its_own_request",
            "serving/test_decoding.py::test_a_client_that_leaves_and_a_deadline_end_the_decoding",
        ),
        "A server does not reload its models while it runs.",
    ),
    18: Fault(
        "Run folders of other versions",
        (
            "runs/test_loading.py::test_a_run_without_checksums_is_loaded_with_a_warning",
            "runs/test_old_runs.py::test_a_run_of_an_earlier_version_predicts_the_same_and_continues",
            "training/test_run_folder.py::test_facts_that_are_missing_damaged_or_newer_are_refused",
        ),
    ),
    19: Fault("A GPU that fails", ("cli/test_commands.py::test_a_failing_gpu_is_not_reported_as_a_bug",)),
    20: Fault(
        "A compiler that fails",
        ("training/test_options.py::test_a_failure_of_torch_compile_is_reported_once_and_eager_mode_used",),
    ),
}
