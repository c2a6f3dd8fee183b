//! Deployment files: they parse, use settings that exist, and their command lines run.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use serde_yaml_ng::Value;
use tollgate_testkit::{Postgres, Redis, Request, TestGateway};

use crate::support::{self, PROGRAM};

fn deploy(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn text(file: &str) -> String {
    let path = deploy(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(file: &str, text: &str) -> Value {
    let mut value: Value = serde_yaml_ng::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}\n{text}"));
    value.apply_merge().unwrap();
    value
}

/// Every environment variable that a setting reads.
fn known_variables() -> Vec<String> {
    let out = Command::new(PROGRAM).args(["check", "--example"]).output().unwrap();
    let mut section = String::new();
    let mut known = Vec::new();
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_uppercase();
        } else if let Some(alias) = line.strip_prefix("# Also read from the environment as ") {
            known.push(alias.trim_end_matches('.').to_owned());
        } else if let Some((name, _)) = line.strip_prefix("# ").and_then(|line| line.split_once(" = ")) {
            known.push(format!("TOLLGATE_{section}__{}", name.to_uppercase()));
        }
    }
    known
}

fn assert_known(variables: impl Iterator<Item = String>) {
    // Variables that the catalogs refer to.
    const OWN: [&str; 4] = ["OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY", "TOLLGATE_CI_KEY"];
    let known = known_variables();
    for name in variables {
        assert!(known.contains(&name) || OWN.contains(&name.as_str()), "{name} is not a setting");
    }
}

fn gateways(compose: &Value) -> Vec<(&str, &Value)> {
    let services = compose["services"].as_mapping().unwrap();
    services
        .iter()
        .map(|(name, service)| (name.as_str().unwrap(), service))
        .filter(|(name, _)| name.starts_with("gateway-"))
        .collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_sequence().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn environment(service: &Value) -> BTreeMap<String, String> {
    let pairs = service["environment"].as_mapping().unwrap();
    pairs.iter().map(|(name, value)| (name.as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned())).collect()
}

#[test]
fn compose_file_has_three_gateways_with_own_folders_and_health_conditions() {
    let compose = yaml("compose.yaml", &text("compose/compose.yaml"));
    let gateways = gateways(&compose);
    assert_eq!(gateways.len(), 3);
    let mut folders: Vec<String> = gateways.iter().map(|(_, service)| strings(&service["volumes"])[0].clone()).collect();
    folders.dedup();
    assert_eq!(folders.len(), 3, "each process has a separate journal: {folders:?}");
    for (_, service) in &gateways {
        assert_known(environment(service).into_keys());
        for needed in ["postgres", "valkey"] {
            assert_eq!(service["depends_on"][needed]["condition"], "service_healthy");
            assert!(compose["services"][needed]["healthcheck"]["test"].is_sequence());
        }
    }
    let volumes = compose["volumes"].as_mapping().unwrap();
    assert!(folders.iter().all(|folder| volumes.contains_key(folder.split(':').next().unwrap())));
    let example = text("compose/.env.example");
    for name in ["TOLLGATE_MASTER_KEY", "POSTGRES_PASSWORD", "TOLLGATE_CI_KEY"].into_iter().chain(PROVIDERS.map(|(_, key)| key)) {
        assert!(example.contains(&format!("\n{name}=")), "{name} is not in .env.example");
    }
}

/// Providers of the compose catalog, with the variables of their keys.
const PROVIDERS: [(&str, &str); 3] =
    [("openai", "OPENAI_API_KEY"), ("gemini", "GEMINI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")];

#[test]
fn each_provider_of_the_compose_file_is_optional() {
    let compose = yaml("compose.yaml", &text("compose/compose.yaml"));
    let (_, service) = gateways(&compose)[0];
    let passed = environment(service);
    let folder = tempfile::TempDir::new().unwrap();
    for chosen in [&[][..], &PROVIDERS[..1], &PROVIDERS[1..2], &PROVIDERS[2..], &PROVIDERS[..]] {
        let mut catalog = text("compose/catalog.toml");
        let mut command = Command::new(PROGRAM);
        for (_, variable) in PROVIDERS {
            assert_eq!(passed[variable], format!("${{{variable}:-}}"), "passed on, and empty where it is not set");
            command.env_remove(variable);
        }
        for (provider, variable) in chosen {
            catalog = catalog.replace(&format!("#{provider} "), "");
            command.env(variable, "a-key-of-the-provider");
        }
        let file = folder.path().join("catalog.toml");
        fs::write(&file, catalog).unwrap();
        let out = command.args(["check", "--catalog"]).arg(&file).env("TOLLGATE_CI_KEY", "tk-0123456789abcdef").output().unwrap();
        let shown = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{chosen:?}: {shown}{}", String::from_utf8_lossy(&out.stderr));
        assert!(shown.contains(&format!("{} channel", chosen.len() + 1)), "{chosen:?}: {shown}");
    }
}

#[test]
fn image_owns_its_data_folder() {
    let image = text("docker/Dockerfile");
    let (_, runtime) = image.rsplit_once("\nFROM ").unwrap();
    let folder = runtime.find("--chown=65532:65532 /out/data /var/lib/tollgate\n").expect("made with its owner");
    assert!(folder < runtime.find("VOLUME /var/lib/tollgate").unwrap(), "later changes of a volume are lost");
    assert!(runtime.contains("\nUSER 65532:65532\n"));
}

/// The instructions of a Dockerfile by stage: name and arguments, continued lines joined.
fn stages(image: &str) -> Vec<Vec<(String, String)>> {
    let lines = image.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let mut stages: Vec<Vec<(String, String)>> = Vec::new();
    for (name, arguments) in lines.lines().filter_map(|line| line.split_once(' ')) {
        if name == "FROM" {
            stages.push(Vec::new());
        }
        stages.last_mut().expect("FROM comes first").push((name.to_owned(), arguments.trim().to_owned()));
    }
    stages
}

#[test]
fn image_contains_the_built_binary_and_starts_it() {
    let image = text("docker/Dockerfile");
    let stages = stages(&image);
    let [build, runtime] = &stages[..] else { panic!("{stages:?}") };
    let all = |stage: &[(String, String)], name: &str| -> Vec<String> {
        stage.iter().filter(|(it, _)| it == name).map(|(_, arguments)| arguments.clone()).collect()
    };
    let one = |name: &str| match &all(runtime, name)[..] {
        [one] => one.clone(),
        found => panic!("{name}: {found:?}"),
    };
    // The build: a compiler that is new enough, and the binary of this package.
    let root: toml::Table = fs::read_to_string(deploy("../Cargo.toml")).unwrap().parse().unwrap();
    let minimum = root["workspace"]["package"]["rust-version"].as_str().unwrap();
    let version = |text: &str| text.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>();
    let compiler = build[0].1.strip_prefix("rust:").and_then(|rest| rest.split('-').next()).expect("an image of Rust");
    assert!(version(compiler) >= version(minimum), "Rust {compiler} cannot build what needs {minimum}");
    let made = all(build, "RUN").join(" && ");
    let binary = std::path::Path::new(PROGRAM).file_name().unwrap().to_str().unwrap();
    assert!(made.contains(&format!("--package {} ", env!("CARGO_PKG_NAME"))), "{made}");
    assert!(made.contains(&format!("cp target/release/{binary} /out/{binary}")), "{made}");
    // The second stage copies only files that the first one made.
    let mut placed = BTreeMap::new();
    for copy in all(runtime, "COPY") {
        let words: Vec<&str> = copy.split_whitespace().collect();
        let [flags @ .., from, to] = &words[..] else { panic!("{copy}") };
        assert!(flags.contains(&"--from=build"), "{copy}");
        assert!(made.contains(&format!(" {from}")), "nothing makes {from}");
        placed.insert((*to).to_owned(), flags.join(" "));
    }
    let start: Vec<String> = serde_json::from_str(&one("ENTRYPOINT")).unwrap();
    assert!(start.len() == 1 && placed.contains_key(&start[0]), "{start:?} is not in the image");
    let arguments: Vec<String> = serde_json::from_str(&one("CMD")).unwrap();
    assert!(Command::new(PROGRAM).args(&arguments).arg("--help").output().unwrap().status.success(), "{arguments:?}");
    // Folder, owner and port are the same in all files that name them.
    let variables: BTreeMap<String, String> = one("ENV")
        .split_whitespace()
        .map(|pair| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).expect(pair))
        .collect();
    let folder = &variables["TOLLGATE_DATA"];
    assert_eq!(&one("VOLUME"), folder);
    assert!(placed[folder].contains(&format!("--chown={}", one("USER"))), "{}", placed[folder]);
    let (_, port) = variables["TOLLGATE_SERVER__LISTEN"].rsplit_once(':').unwrap();
    assert_eq!(one("EXPOSE"), port);
    assert_eq!(one("STOPSIGNAL"), "SIGTERM");
}

#[test]
fn files_included_at_build_time_are_sent_to_the_image_build() {
    let root = fs::canonicalize(deploy("..")).unwrap();
    let rules = fs::read_to_string(root.join(".dockerignore")).unwrap();
    let kept: Vec<PathBuf> = rules.lines().filter_map(|rule| rule.strip_prefix('!')).map(|path| root.join(path)).collect();
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut included = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            if entry.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let source = fs::read_to_string(&entry).unwrap();
            for macro_name in ["include_str!(\"", "include_bytes!(\""] {
                for path in source.split(macro_name).skip(1).filter_map(|rest| rest.split('"').next()) {
                    let file = folder.join(path);
                    let file = fs::canonicalize(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                    assert!(kept.iter().any(|kept| file.starts_with(kept)), "{} is not sent to the builder", file.display());
                    included += 1;
                }
            }
        }
    }
    assert!(included > 10, "{included}");
}

#[test]
fn only_sources_are_sent_to_the_image_build() {
    let root = deploy("..");
    let rules = fs::read_to_string(root.join(".dockerignore")).expect(".dockerignore");
    let rules: Vec<&str> = rules.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(rules[0], "*", "what is sent is named");
    let kept: Vec<&str> = rules.iter().filter_map(|rule| rule.strip_prefix('!')).collect();
    for secret in ["target", "tollgate-data", ".git", "deploy", "fuzz", ".cache"] {
        assert!(!kept.iter().any(|path| path.trim_end_matches('/') == secret), "{secret} is sent to the builder");
    }
    for anywhere in ["target", "tollgate-data", "master.key", ".env"] {
        assert!(rules.contains(&format!("**/{anywhere}").as_str()), "{anywhere} inside of a source folder is sent");
    }
    let workspace: toml::Table = fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let folders = members.iter().map(|member| member.as_str().unwrap().trim_end_matches("/*"));
    for needed in folders.chain(["Cargo.toml", "Cargo.lock", ".cargo"]) {
        assert!(kept.contains(&needed), "the build needs {needed}");
    }
}

#[test]
fn balancer_forwards_the_client_address_and_is_the_only_trusted_proxy() {
    let compose = yaml("compose.yaml", &text("compose/compose.yaml"));
    let address = compose["services"]["balancer"]["networks"]["default"]["ipv4_address"].as_str().unwrap();
    for (name, service) in gateways(&compose) {
        assert_eq!(environment(service)["TOLLGATE_SERVER__TRUSTED_PROXIES"], address, "{name}");
        assert!(service.get("ports").is_none(), "{name} is reached through the balancer");
    }
    let lines = text("compose/nginx.conf");
    assert!(
        lines.lines().any(|line| line.trim() == "proxy_set_header X-Forwarded-For $remote_addr;"),
        "a caller's own header is passed"
    );
}

#[test]
fn compose_command_line_serves() {
    let (Some(postgres), Some(redis)) =
        (Postgres::start("the_compose_files_command_line"), Redis::start("the_compose_files_command_line"))
    else {
        return;
    };
    let compose = yaml("compose.yaml", &text("compose/compose.yaml"));
    let (_, service) = gateways(&compose)[0];
    let command = strings(&service["command"]);
    assert_eq!(command[..2], ["serve", "--catalog"]);
    let secret = "tk-of-the-compose-file-0123456789";
    let mut gateway =
        TestGateway::builder(PROGRAM).arg("--catalog").arg(deploy("compose/catalog.toml").to_str().unwrap()).without_record_check();
    for (name, value) in environment(service) {
        let value = match name.as_str() {
            // The test's own folder, address and services; everything else unchanged.
            "TOLLGATE_DATA" | "TOLLGATE_SERVER__LISTEN" => continue,
            "DATABASE_URL" => postgres.url(),
            "REDIS_URL" => redis.url(),
            "TOLLGATE_MASTER_KEY" => "tgm1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned(),
            "TOLLGATE_CI_KEY" => secret.to_owned(),
            _ if value.contains("${") => String::new(),
            _ => value,
        };
        gateway = gateway.env(&name, &value);
    }
    let gateway = gateway.spawn();
    let answer = gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(secret));
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let health = strings(&service["healthcheck"]["test"]);
    let check = || {
        let mut check = std::process::Command::new(PROGRAM);
        check.args(&health[2..]).env("TOLLGATE_SERVER__LISTEN", gateway.address().to_string()).output().unwrap()
    };
    let out = check();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // The gateway keeps serving in a database outage.
    postgres.freeze();
    assert_eq!(check().status.code(), Some(0));
    postgres.thaw();
}

/// A template with its placeholders replaced by plain values, enough to parse it as YAML.
fn filled(template: &str, values: &Value) -> String {
    let mut lines = Vec::new();
    for line in template.lines() {
        if line.trim_start().starts_with("{{-") {
            continue;
        }
        let mut line = line.to_owned();
        while let Some((before, rest)) = line.split_once("{{") {
            let (inside, after) = rest.split_once("}}").unwrap();
            let path = inside.trim().split(' ').next().unwrap();
            let put = if inside.contains("toJson") {
                "{}".to_owned()
            } else if inside.contains("indent") {
                "    text".to_owned()
            } else if let Some(path) = path.strip_prefix(".Values.") {
                let found = path.split('.').fold(values, |value, name| &value[name]);
                assert!(!found.is_null(), "values.yaml has no {path}");
                serde_yaml_ng::to_string(found).unwrap().trim().trim_matches('\'').to_owned()
            } else {
                "text".to_owned()
            };
            line = format!("{before}{put}{after}");
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[test]
fn chart_templates_are_yaml_and_use_existing_values() {
    let values = yaml("values.yaml", &text("helm/tollgate/values.yaml"));
    assert_eq!(yaml("Chart.yaml", &text("helm/tollgate/Chart.yaml"))["name"], "tollgate");
    let mut kinds = Vec::new();
    for file in ["configmap", "service", "statefulset", "poddisruptionbudget"] {
        let name = format!("helm/tollgate/templates/{file}.yaml");
        let template = yaml(&name, &filled(&text(&name), &values));
        kinds.push(template["kind"].as_str().unwrap().to_owned());
        if file == "statefulset" {
            let container = &template["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(strings(&container["args"]), ["serve", "--catalog", "/etc/tollgate/catalog.toml"]);
            let variables = container["env"].as_sequence().unwrap().iter();
            assert_known(variables.map(|pair| pair["name"].as_str().unwrap().to_owned()).filter(|name| name != "text"));
            assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
            assert_eq!(template["spec"]["template"]["spec"]["enableServiceLinks"], false, "TOLLGATE_PORT and others would be set");
        }
    }
    assert_eq!(kinds, ["ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"]);
    let notes = text("helm/tollgate/templates/NOTES.txt");
    for needed in ["DATABASE_URL", "REDIS_URL", "TOLLGATE_MASTER_KEY"] {
        assert!(notes.contains(&format!("--from-literal={needed}=")), "the recipe of the secret lacks {needed}");
    }
    assert!(notes.contains("/usr/local/bin/tollgate key create first --budget 5/month"));
    let folder = tempfile::TempDir::new().unwrap();
    let catalog = folder.path().join("catalog.toml");
    fs::write(&catalog, values["catalog"].as_str().unwrap()).unwrap();
    let out = Command::new(PROGRAM).args(["check", "--catalog"]).arg(&catalog).current_dir(folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn systemd_unit_uses_known_arguments_and_drains() {
    let unit = text("systemd/tollgate.service");
    let words = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split(' ').collect::<Vec<&str>>()
    };
    let (start, reload) = (words("ExecStart="), words("ExecReload="));
    assert_eq!((start[1], reload[1]), ("serve", "upgrade"));
    assert_eq!((start[0], &start[2..]), (reload[0], &reload[2..]), "the new process has the options of the first");
    for words in [&start, &reload] {
        let help = String::from_utf8(Command::new(PROGRAM).args([words[1], "--help"]).output().unwrap().stdout).unwrap();
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "{flag}");
        }
    }
    // The new process tells systemd that it is the main one.
    assert!(unit.contains("NotifyAccess=all"));
    assert!(unit.contains("KillSignal=SIGTERM") && unit.contains("TimeoutStopSec=610"));
    assert!(unit.contains("\nDocumentation=man:tollgate(1)\n"), "what it points to is there: `tollgate man`");
    let image = text("docker/Dockerfile");
    assert_known(image.lines().filter_map(|line| {
        let line = line.trim_start_matches("ENV ").trim().trim_end_matches(" \\");
        line.starts_with("TOLLGATE_").then(|| line.split('=').next().unwrap().to_owned())
    }));
}
