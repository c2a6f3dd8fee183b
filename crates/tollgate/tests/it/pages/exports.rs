//! Lists as CSV files: what the filter selects, in the order of the list, without secrets and without formulas.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{UPSTREAM_CREDENTIAL, wait_for};

use super::{
    Person,
    attacks::signed_in,
    operators::{make, owner, upstream},
};
use crate::{admin::Admin, identity::make_member};

/// The lines of a file, the head first.
fn file(person: &mut Person, admin: &Admin, path: &str) -> Vec<String> {
    let answer = person.get(&admin.gateway, path);
    let text = answer.text();
    assert_eq!(answer.status, 200, "{path}: {text}");
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"), "{path}");
    let name = path.trim_start_matches('/').split('?').next().unwrap().replace("pricing", "prices");
    assert_eq!(answer.header("content-disposition"), Some(format!("attachment; filename=\"{name}\"").as_str()));
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let columns = |line: &str| line.matches(',').count();
    assert!(lines.iter().all(|line| line.contains('"') || columns(line) == columns(&lines[0])), "{text}");
    lines
}

#[test]
fn members_are_exported_with_filter_and_order_and_balances_for_admins_alone() {
    let admin = Admin::echo();
    for name in ["ann", "=cmd()", "zoe"] {
        admin.post("/admin/v1/members", &json!({"name": name, "billing": "prepaid"}));
    }
    crate::admin::ok(&admin.once("/admin/v1/ledger/top-ups", "zoe", &json!({"member": "zoe", "amount": "5"})));
    make_member(&admin, "op", "operator");
    make_member(&admin, "root", "admin");
    let (mut op, mut root) = (signed_in(&admin, "op"), signed_in(&admin, "root"));
    let page = op.page(&admin.gateway, "/members?role=member&sort=name");
    assert!(page.contains("href=\"/members.csv?role=member&#38;sort=name\""), "{page}");
    let lines = file(&mut op, &admin, "/members.csv?role=member&sort=name");
    assert!(lines[0].starts_with("id,name,status,role,"), "{lines:?}");
    let names: Vec<&str> = lines[1..].iter().filter_map(|line| line.split(',').nth(1)).collect();
    assert!(names.contains(&"'=cmd()") && !names.contains(&"op"), "{names:?}");
    let position = |name: &str| names.iter().position(|known| *known == name).unwrap();
    assert!(position("ann") < position("zoe"), "{names:?}");
    assert!(lines.iter().all(|line| !line.contains("5.00")), "operators see no balances: {lines:?}");
    let of_root = file(&mut root, &admin, "/members.csv?search=zoe");
    assert!(of_root.len() == 2 && of_root[1].contains("prepaid,5.00"), "{of_root:?}");
    let mut ann = Person::default();
    assert_ne!(ann.get(&admin.gateway, "/members.csv").status, 200);
}

#[test]
fn groups_channels_and_prices_are_exported() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    boss.post(&admin.gateway, "/channels/main/models/add", &[("model", "m")]);
    admin.post("/admin/v1/groups", &json!({"name": "team", "description": "+a, b", "models": ["m*"]}));
    admin.patch("/admin/v1/channels/main", &json!({"tags": ["eu"]}));
    crate::admin::ok(&admin.call("PUT", "/admin/v1/prices/m", Some(&json!({"price": {"input": "2", "output": "4"}}))));

    let groups = file(&mut boss, &admin, "/groups.csv");
    let team = groups.iter().find(|line| line.contains(",team,")).unwrap();
    assert!(groups.len() == 4 && team.contains("\"'+a, b\"") && team.contains(",m*,"), "{groups:?}");

    wait_for("the gateway has the tag", Duration::from_secs(30), || {
        boss.page(&admin.gateway, "/channels?tag=eu").contains("href=\"/channels/main\"")
    });
    let page = boss.page(&admin.gateway, "/channels?tag=eu");
    assert!(page.contains("href=\"/channels.csv?tag=eu\""), "{page}");
    let channels = file(&mut boss, &admin, "/channels.csv?tag=eu");
    assert!(channels.len() == 2 && channels[1].contains(",main,") && channels[1].contains(",eu,"), "{channels:?}");
    assert!(!channels[1].contains(UPSTREAM_CREDENTIAL) && channels[1].contains(&upstream.openai_url()), "{channels:?}");
    let by_name = file(&mut boss, &admin, "/channels.csv?sort=name");
    let names: Vec<&str> = by_name[1..].iter().filter_map(|line| line.split(',').nth(1)).collect();
    assert_eq!(names, ["echo", "main"]);

    let prices = file(&mut boss, &admin, "/pricing.csv?state=priced&search=m");
    assert!(prices[0].starts_with("model,multiplier,input,output"), "{prices:?}");
    assert!(prices.iter().any(|line| line.starts_with("m,1,2.00,4.00") && line.contains(",main,")), "{prices:?}");
    let unpriced = file(&mut boss, &admin, "/pricing.csv?state=unpriced&search=m");
    assert!(unpriced.iter().all(|line| !line.starts_with("m,")), "{unpriced:?}");
    assert_eq!(boss.get(&admin.gateway, "/pricing.csv?group=nowhere").status, 404);
}

#[test]
fn alerts_are_exported_with_their_filter() {
    let admin = Admin::echo();
    let mut boss = owner(&admin);
    admin.post("/admin/v1/members", &json!({"name": "=poor", "billing": "prepaid"}));
    crate::admin::ok(&admin.call("PUT", "/admin/v1/settings/alerts.balance_usd", Some(&json!({"value": "2"}))));
    wait_for("the alert is open", Duration::from_mins(1), || {
        boss.page(&admin.gateway, "/alerts?rule=balance_low&state=open").contains("=poor")
    });
    let lines = file(&mut boss, &admin, "/alerts.csv?rule=balance_low&state=open");
    assert!(lines.len() == 2 && lines[1].starts_with("balance_low,open,20"), "{lines:?}");
    for cell in lines[1].split(',') {
        assert!(!cell.starts_with('='), "{lines:?}");
    }
    assert_eq!(file(&mut boss, &admin, "/alerts.csv?rule=balance_low&state=ended").len(), 1);
    assert_eq!(file(&mut boss, &admin, "/alerts.csv?rule=key_expiring").len(), 1);
    let page = boss.page(&admin.gateway, "/alerts?state=open");
    assert!(page.contains("href=\"/alerts.csv?state=open\""), "{page}");
}
