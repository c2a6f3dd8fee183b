//! Names of subjects outside the database, in Redis keys and in the cache file: the id as text, `all` for the gateway.

use tollgate_core::{ChannelId, GroupId, KeyId, MemberId, Subject};

const ALL: &str = "all";

pub(crate) fn name(subject: Subject) -> String {
    match subject {
        Subject::Key(id) => id.to_string(),
        Subject::Member(id) => id.to_string(),
        Subject::Group(id) => id.to_string(),
        Subject::Channel(id) => id.to_string(),
        Subject::Gateway => ALL.to_owned(),
    }
}

pub(crate) fn parse(name: &str) -> Option<Subject> {
    if name == ALL {
        return Some(Subject::Gateway);
    }
    let key = KeyId::parse(name).map(Subject::Key);
    let member = || MemberId::parse(name).map(Subject::Member);
    let group = || GroupId::parse(name).map(Subject::Group);
    key.or_else(member).or_else(group).or_else(|| ChannelId::parse(name).map(Subject::Channel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::record;

    #[test]
    fn names_round_trip() {
        let id = record(1).id.uuid();
        for subject in [
            Subject::Key(KeyId::from_uuid(id)),
            Subject::Member(MemberId::from_uuid(id)),
            Subject::Group(GroupId::from_uuid(id)),
            Subject::Channel(ChannelId::from_uuid(id)),
            Subject::Gateway,
        ] {
            assert_eq!(parse(&name(subject)), Some(subject));
        }
        assert_eq!(parse("req_x"), None);
    }
}
