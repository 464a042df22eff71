// SPDX-License-Identifier: Apache-2.0
//! Commands that go to one node together.

use std::sync::Arc;

use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;

use super::answers::Answers;
use super::job::Job;
use super::join::{Join, PartAnswers, Parts};
use super::redirects::Redirects;
use super::router::Router;
use super::routes::Route;
use super::spec::Spec;

/// Commands, with the call of each.
#[derive(Default)]
pub(super) struct Pack {
    pub(super) bytes: Vec<u8>,
    /// End of each command in the bytes; only needed where it may be redirected.
    pub(super) ends: Vec<usize>,
    pub(super) attempts: Vec<AttemptId>,
    /// What each asks for, of rows that are asked for in parts.
    pub(super) parts: Parts,
}

impl Pack {
    /// Sends the commands, if there are any; `join` puts rows together that are asked for in parts.
    pub(super) fn send(
        self,
        router: &Arc<Router>,
        spec: &Arc<Spec>,
        route: Route,
        join: Option<&Arc<Join>>,
    ) -> Result<(), TaskError> {
        let Self { bytes, ends, attempts, parts } = self;
        if attempts.is_empty() {
            return Ok(());
        }
        let redirects = || Redirects::new(Arc::clone(router), route, bytes.clone(), ends);
        let (spec, redirects) = (Arc::clone(spec), router.is_cluster().then(redirects));
        let answers = match join {
            Some(join) => {
                let parts = PartAnswers::new(Arc::clone(join), parts);
                Answers::of_parts(spec, attempts, parts, redirects)
            }
            None => Answers::new(spec, attempts, redirects)?,
        };
        router.send(route.node, Job { bytes, answers: Box::new(answers) });
        Ok(())
    }
}
