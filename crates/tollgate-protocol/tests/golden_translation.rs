//! Golden cases of request translation: a caller's request, and the upstream request or the refusal. Each case of
//! `fixtures/golden` with kind `request`, or with kind `error` and a request as input, is a test of its own.

mod golden;

use golden::{Case, run};

/// Defines one `#[test]` per case, and the list of all cases.
macro_rules! golden_requests {
    ($($direction:ident { $($kind:ident: [$($name:ident),*],)* })*) => {
        $(mod $direction {
            $(mod $kind {
                $(#[test]
                fn $name() {
                    crate::run(stringify!($direction), concat!(stringify!($kind), ".", stringify!($name)));
                })*
            })*
        })*

        /// Direction and name of every test above.
        const LISTED: &[(&str, &str)] =
            &[$($($((stringify!($direction), concat!(stringify!($kind), ".", stringify!($name))),)*)*)*];
    };
}

golden_requests! {
    openai_to_gemini {
        request: [
            minimal,
            sampling_params,
            zero_and_noop_values,
            bookkeeping_fields_dropped,
            leading_system_parts,
            system_in_the_middle_stays,
            system_between_call_and_result,
            system_only,
            consecutive_same_role_merge,
            empty_contents,
            parallel_tools_roundtrip,
            no_ids_on_gemini_25,
            signature_from_id,
            signature_from_extra_content,
            tool_result_with_ref,
            broken_arguments_kept,
            tool_schema_verbatim,
            schema_subset_for_old_models,
            tool_choice_named,
            tool_choice_allowed_tools_auto,
            json_schema_with_tools_on_g3,
            effort_level,
            effort_none_cannot_disable,
            effort_budget,
            google_extra_body,
            media_parts,
            remote_image_fetched,
            deprecated_functions,
            history_starts_with_tool_call
        ],
        error: [
            logit_bias_rejected,
            too_many_stops,
            n_too_large,
            json_with_tools_on_25,
            unknown_part_type,
            tool_result_missing,
            remote_image_refused
        ],
    }
    gemini_to_openai {
        request: [
            minimal,
            role_absent_and_multi_text,
            system_all_parts,
            snake_case_and_number_forms,
            same_function_twice_no_ids,
            ids_win_over_order,
            text_before_function_response,
            thoughts_and_signatures_dropped,
            tools_schema_conversion,
            tool_config_any_one,
            tool_config_any_many,
            function_name_rewritten,
            response_schema,
            json_mode_word,
            thinking_budget_to_effort,
            safety_and_labels_dropped,
            media
        ],
        error: [
            messages_instead_of_contents,
            top_k_unsupported,
            google_search_unsupported,
            stop_five,
            orphan_function_response,
            gs_uri,
            root_array_schema
        ],
    }
    openai_to_anthropic {
        request: [
            minimal_default_max_tokens,
            system_params,
            parallel_results_one_message,
            gemini_ids_cleaned,
            effort_and_schema,
            images,
            adaptive_effort_noop_sampling,
            adaptive_effort_none,
            always_effort_none_adjusted
        ],
        error: [
            temperature_above_one,
            n_two,
            adaptive_temperature,
            prefill_not_taken
        ],
    }
    gemini_to_anthropic {
        request: [
            functions_and_candidates,
            anthropic_thinking_returns,
            omitted_signatures_return
        ],
    }
    anthropic_to_gemini {
        request: [
            thinking_images_errors,
            claude_code_first_turn,
            two_rounds_with_signatures,
            deferred_tool_loaded,
            budget_and_sampling
        ],
        error: [
            unknown_block
        ],
    }
    anthropic_to_openai {
        request: [
            tool_results_first,
            claude_code_first_turn,
            claude_code_reasoning,
            results_out_of_order,
            interleaved_thinking_turns,
            any_tool_one_at_a_time,
            documents_and_images,
            output_format_and_noops
        ],
        error: [
            server_tool,
            other_context_edit,
            server_held_thread,
            max_tokens_missing
        ],
    }
    responses_to_openai {
        request: [
            minimal,
            stream_forces_usage,
            leading_system_joined,
            system_later_stays,
            sampling_and_limits,
            sdk_defaults_are_noops,
            bookkeeping_dropped,
            tool_loop,
            result_parts_and_image,
            user_parts,
            custom_tool,
            namespace_flattened,
            offered_web_search_dropped,
            only_hosted_tools,
            tool_choice_forms,
            structured_output,
            effort_on_a_reasoning_model,
            own_reasoning_returns,
            foreign_reasoning_dropped,
            codex_first_turn
        ],
        error: [
            previous_response_id,
            background,
            conversation,
            item_reference,
            hosted_tool,
            hosted_tool_forced,
            orphan_output,
            call_without_output,
            prompt_template
        ],
    }
    responses_to_gemini {
        request: [
            minimal,
            leading_system_parts,
            system_later,
            sampling_stream,
            effort_without_summary,
            effort_with_summary,
            summary_alone,
            effort_none_adjusted,
            signature_on_call,
            signature_of_text,
            signature_lost,
            custom_tool_as_function,
            namespace_and_allowed_tools,
            structured_output,
            image_and_result_image
        ],
        error: [
            verbosity,
            format_with_tools,
            unknown_item,
            compaction_item
        ],
    }
    responses_to_anthropic {
        request: [
            minimal_default_max_tokens,
            system_params_choice,
            thinking_returns,
            omitted_thinking_returns,
            foreign_thoughts_dropped,
            results_first,
            effort_adaptive_summary,
            effort_budget_and_format,
            summary_alone_budget,
            files
        ],
        error: [
            temperature_above_one,
            json_object,
            prefill_not_taken,
            logprobs
        ],
    }
}

#[test]
fn every_request_case_is_listed() {
    let mut present: Vec<(String, String)> = Vec::new();
    for direction in golden::DIRECTIONS {
        let cases = Case::all(direction).into_iter().filter(Case::is_request);
        present.extend(cases.map(|case| (direction.to_owned(), case.name)));
    }
    let mut listed: Vec<(String, String)> =
        LISTED.iter().map(|(direction, name)| ((*direction).to_owned(), (*name).to_owned())).collect();
    present.sort();
    listed.sort();
    assert_eq!(listed, present);
}
