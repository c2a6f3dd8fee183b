//! Answers of the admin API that pages of several people share for a moment: sums of long periods, which read the most and change the
//! least. The admin API itself keeps none.

use std::{sync::Arc, time::Duration};

use moka::sync::Cache;
use serde_json::Value;
use tollgate_store::AdminScope;

/// How old a shared answer may be.
const KEPT_FOR: Duration = Duration::from_secs(20);
/// Answers that are kept. Those of pages have at most some hundred rows.
const MAX_KEPT: u64 = 64;

/// What an answer depends on besides the data: the route, who may see it, and the query.
type Question = (&'static str, AdminScope, String);

#[derive(Debug)]
pub(crate) struct KeptAnswers(Cache<Question, Arc<Value>>);

impl Default for KeptAnswers {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(MAX_KEPT).time_to_live(KEPT_FOR).build())
    }
}

impl KeptAnswers {
    pub(crate) fn get(&self, question: &Question) -> Option<Arc<Value>> {
        self.0.get(question)
    }

    pub(crate) fn keep(&self, question: Question, answer: Value) -> Arc<Value> {
        let answer = Arc::new(answer);
        self.0.insert(question, Arc::clone(&answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_shared_by_people_of_one_role_who_ask_the_same() {
        let answers = KeptAnswers::default();
        let question = |scope, query: &str| ("sum_usage", scope, query.to_owned());
        answers.keep(question(AdminScope::Admin, "by=key"), json!({"items": [1]}));
        assert_eq!(answers.get(&question(AdminScope::Admin, "by=key")).as_deref(), Some(&json!({"items": [1]})));
        assert_eq!(answers.get(&question(AdminScope::Operator, "by=key")), None);
        assert_eq!(answers.get(&question(AdminScope::Admin, "by=model")), None);
    }
}
