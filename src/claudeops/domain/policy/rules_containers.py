"""Rules for containers and clusters: docker, docker compose, kubectl, helm, and what deploys from the repositories."""

from __future__ import annotations

from typing import Final

from claudeops.domain.policy.rules import CommandGroup, CommandRule

_NO_FOLLOW = "use --tail=100 instead of -f: what follows never ends"
_SAFE_FORMAT = "give a --format with single fields, such as '{{.State.Status}}': all of it would show the environment"
_NAMES_FORMAT = "one:{{.Names}},{{.Name}},{{.ID}},{{.Service}}"
_LOG_OPTIONS = "-t|--timestamps --since=text --until=text -n|--tail=re:(all|[0-9]{1,6}) --details"
_ALL_SERVICES = "name the services: acting on all of them at once is not allowed"
_LIST_OPTIONS = "-a|--all -q|--quiet -f|--filter=text --format=text --no-trunc -n|--last=int -l|--latest -s|--size"
_KUBECTL_OUTPUT = (
    "re:(wide|name|yaml|json|(jsonpath|custom-columns|go-template)=.*|(jsonpath|custom-columns)-as-json=.*)"
)

DOCKER_RULES: Final = (
    CommandRule(name="docker", line="--version|-v"),
    CommandRule(name="docker version", options="-f|--format=text"),
    CommandRule(name="docker info", options="-f|--format=text"),
    *(
        rule
        for name in ("docker ps", "docker container ls|docker container list|docker container ps")
        for rule in (
            CommandRule(
                name=name,
                options="-a|--all -q|--quiet -f|--filter=text --no-trunc -n=int -l",
                required="-q",
                output="names",
            ),
            CommandRule(
                name=name,
                options=f"-a|--all -f|--filter=text --format={_NAMES_FORMAT}",
                required="--format",
                output="names",
            ),
            CommandRule(name=name, options=_LIST_OPTIONS),
        )
    ),
    CommandRule(name="docker logs|docker container logs", options=_LOG_OPTIONS, arguments="name", hint=_NO_FOLLOW),
    CommandRule(
        name="docker inspect|docker container inspect|docker image inspect|docker volume inspect|docker service"
        " inspect|docker node inspect",
        options="-f|--format=template -s|--size --type=word",
        required="-f",
        arguments="name+",
        hint=_SAFE_FORMAT,
    ),
    CommandRule(name="docker network inspect", options="-f|--format=text -v|--verbose", arguments="name+"),
    CommandRule(
        name="docker stats|docker container stats",
        options="--no-stream -a|--all --format=text --no-trunc",
        required="--no-stream",
        arguments="name*",
        hint="add --no-stream",
    ),
    CommandRule(name="docker top|docker container top", arguments="name"),
    CommandRule(name="docker port|docker container port", arguments="name word?"),
    CommandRule(name="docker diff|docker container diff", arguments="name"),
    CommandRule(
        name="docker images|docker image ls|docker image list", options=_LIST_OPTIONS + " --digests", arguments="text?"
    ),
    CommandRule(
        name="docker volume ls|docker network ls|docker context ls|docker node ls|docker service ls|docker stack ls"
        "|docker plugin ls",
        options=_LIST_OPTIONS,
    ),
    CommandRule(
        name="docker service ps|docker stack ps|docker stack services|docker node ps",
        options=_LIST_OPTIONS + " --no-resolve",
        arguments="name*",
    ),
    CommandRule(
        name="docker service logs", options=_LOG_OPTIONS + " --raw --no-task-ids", arguments="name", hint=_NO_FOLLOW
    ),
    CommandRule(name="docker system df", options="-v|--verbose --format=text"),
    CommandRule(
        name="docker events|docker system events",
        options="--since=text --until=text -f|--filter=text --format=text",
        required="--until",
        hint="give --since and --until",
    ),
    CommandRule(name="docker compose", line="version(?: --short)?"),
    CommandRule(
        name="docker compose ps", options="-q|--quiet -a|--all", required="-q", arguments="name*", output="names"
    ),
    CommandRule(
        name="docker compose ps",
        options="-a|--all -q|--quiet --services --status=word --filter=text --format=text --no-trunc --orphans",
        arguments="name*",
    ),
    CommandRule(name="docker compose ls", options="-a|--all -q|--quiet --format=word --filter=text"),
    CommandRule(
        name="docker compose logs",
        options=_LOG_OPTIONS + " --no-color --no-log-prefix --index=int",
        arguments="name*",
        hint=_NO_FOLLOW,
    ),
    CommandRule(
        name="docker compose top|docker compose images|docker compose stats",
        options="--no-stream -q|--quiet --format=word",
        arguments="name*",
    ),
    CommandRule(name="docker compose port", arguments="name int"),
    CommandRule(
        name="docker compose config|docker compose convert",
        options="-q|--quiet --services --images --volumes --profiles --no-interpolate",
        required="-q|--services|--images|--volumes|--profiles",
        hint="use --services or -q: all of it would show the environment",
    ),
    # --- what may be changed ------------------------------------------------------------------------------
    CommandRule(
        name="docker restart|docker container restart",
        tier=2,
        options="-t|--time|--timeout=int -s|--signal=word",
        arguments="container+",
        action="restart",
    ),
    CommandRule(name="docker start|docker container start", tier=2, arguments="container+", action="restart"),
    CommandRule(name="docker unpause|docker container unpause", tier=2, arguments="container+", action="restart"),
    CommandRule(
        name="docker stop|docker container stop",
        tier=3,
        options="-t|--time|--timeout=int",
        arguments="container+",
        action="restart",
    ),
    CommandRule(
        name="docker compose restart",
        tier=2,
        options="-t|--timeout=int --no-deps",
        arguments="service+",
        action="restart",
        hint=_ALL_SERVICES,
    ),
    CommandRule(
        name="docker compose start",
        tier=2,
        options="--wait",
        arguments="service+",
        action="restart",
        hint=_ALL_SERVICES,
    ),
    CommandRule(
        name="docker compose stop",
        tier=3,
        options="-t|--timeout=int",
        arguments="service+",
        action="restart",
        hint=_ALL_SERVICES,
    ),
    CommandRule(
        name="docker compose up",
        tier=3,
        options="-d|--detach --no-deps --force-recreate --no-recreate --no-build --pull=one:always,missing,never"
        " --wait --wait-timeout=int --quiet-pull -t|--timeout=int",
        required="-d",
        arguments="service+",
        action="redeployment",
        check="compose",
        hint=_ALL_SERVICES,
    ),
    CommandRule(
        name="docker compose pull",
        tier=3,
        options="-q|--quiet --ignore-pull-failures --policy=word",
        arguments="service+",
        action="redeployment",
        check="compose",
        hint=_ALL_SERVICES,
    ),
    CommandRule(
        name="docker service update",
        tier=3,
        options="--force -d|--detach -q|--quiet",
        required="--force",
        arguments="service",
        action="redeployment",
    ),
    CommandRule(
        name="docker service rollback",
        tier=3,
        options="-d|--detach -q|--quiet",
        arguments="service",
        action="redeployment",
    ),
    CommandRule(
        name="docker stack deploy",
        tier=3,
        options="-c|--compose-file=repo -d|--detach --with-registry-auth --resolve-image=word",
        required="-c",
        arguments="service",
        action="redeployment",
    ),
)

CLUSTER_RULES: Final = (
    CommandRule(
        name="kubectl get",
        options=f"-o|--output={_KUBECTL_OUTPUT} -l|--selector=text --field-selector=text --show-labels --sort-by=text"
        " --no-headers --ignore-not-found --chunk-size=int --show-kind -L|--label-columns=word",
        arguments="resource+",
        hint="-w, -f, --raw and secrets are not allowed",
    ),
    CommandRule(name="kubectl describe", options="-l|--selector=text --show-events", arguments="resource+"),
    CommandRule(
        name="kubectl logs",
        options="-c|--container=name --tail=int --since=text --since-time=text -p|--previous --timestamps"
        " -l|--selector=text --all-containers --prefix --max-log-requests=int --limit-bytes=int --ignore-errors",
        arguments="name?",
        hint=_NO_FOLLOW,
    ),
    CommandRule(
        name="kubectl top",
        options="-l|--selector=text --containers --sort-by=word --no-headers --sum",
        arguments="one:pod,pods,po,node,nodes,no name*",
    ),
    CommandRule(name="kubectl version", options="--client --output=word -o=word"),
    CommandRule(name="kubectl cluster-info"),
    CommandRule(name="kubectl api-resources", options="--namespaced --api-group=text -o=word --verbs=word"),
    CommandRule(name="kubectl api-versions"),
    CommandRule(name="kubectl explain", options="--recursive", arguments="name"),
    CommandRule(name="kubectl events", options="--types=word --for=name"),
    CommandRule(name="kubectl config get-contexts", options="-o=word", arguments="name*"),
    CommandRule(name="kubectl config current-context"),
    CommandRule(name="kubectl auth can-i", arguments="name+", options="--list"),
    CommandRule(name="kubectl rollout status", options="--timeout=duration -w|--watch", arguments="name+"),
    CommandRule(name="kubectl rollout history", options="--revision=int", arguments="name+"),
    CommandRule(name="kubectl rollout restart", tier=2, arguments="workload+", action="restart"),
    CommandRule(
        name="kubectl rollout restart",
        tier=2,
        arguments="workloadtype workloadname+",
        action="restart",
        hint="write deployment/NAME",
    ),
    CommandRule(
        name="kubectl delete",
        tier=2,
        options="--wait=?word --grace-period=int:1-3600 --timeout=duration",
        arguments="one:pod,pods,po pod+",
        action="restart",
        hint="only single pods, by name",
    ),
    CommandRule(
        name="kubectl delete", tier=2, options="--wait=?word --timeout=duration", arguments="podref+", action="restart"
    ),
    CommandRule(
        name="kubectl rollout undo", tier=3, options="--to-revision=int", arguments="workload+", action="redeployment"
    ),
    CommandRule(
        name="kubectl rollout undo",
        tier=3,
        options="--to-revision=int",
        arguments="workloadtype workloadname+",
        action="redeployment",
    ),
    CommandRule(
        name="kubectl scale",
        tier=3,
        options="--replicas=int:1-50 --timeout=duration",
        required="--replicas",
        arguments="workload+",
        action="redeployment",
    ),
    CommandRule(
        name="kubectl scale",
        tier=3,
        options="--replicas=int:1-50",
        required="--replicas",
        arguments="workloadtype workloadname+",
        action="redeployment",
    ),
    CommandRule(
        name="kubectl apply",
        tier=3,
        options="-f|--filename=manifest -k|--kustomize=manifest --server-side --wait=?word --timeout=duration --record",
        required="-f|-k",
        action="redeployment",
    ),
    CommandRule(name="kubectl diff", tier=3, options="-f|--filename=repo -k|--kustomize=repo", required="-f|-k"),
    CommandRule(name="helm version", options="--short"),
    CommandRule(
        name="helm list|helm ls",
        options="-a|--all -A|--all-namespaces -q|--short -o|--output=word -f|--filter=text --failed --deployed"
        " --pending",
    ),
    CommandRule(name="helm status", options="-o|--output=word --revision=int --show-resources", arguments="name"),
    CommandRule(name="helm history", options="-o|--output=word --max=int", arguments="name"),
    CommandRule(
        name="helm rollback",
        tier=3,
        options="--wait --timeout=duration",
        arguments="release int?",
        action="redeployment",
    ),
    CommandRule(
        name="helm upgrade",
        tier=3,
        options="-f|--values=repo --wait --timeout=duration --atomic --reuse-values -i|--install --version=word",
        arguments="release repo",
        action="redeployment",
        hint="only charts and values from the repositories",
    ),
    CommandRule(
        name="ansible-playbook",
        tier=3,
        options="-i|--inventory=repo -l|--limit=text -t|--tags=text --skip-tags=text -b|--become -C|--check"
        " -D|--diff -v -vv --list-hosts --list-tasks --syntax-check -f|--forks=int",
        arguments="manifest",
        action="redeployment",
        hint="only playbooks from the repositories",
    ),
    CommandRule(name="crictl", line=r"(?:ps|pods|images|stats|info|version)(?: -[aq]+)*|logs --tail[ =]\d+ \w+"),
)

_KUBECTL = "-n|--namespace=name -A|--all-namespaces --context=name --request-timeout=duration"

_DOCKER_OBJECTS = ("container", "image", "volume", "network", "context", "node", "service", "stack", "plugin", "system")

CONTAINER_GROUPS: Final = (
    CommandGroup(name="docker"),
    *(CommandGroup(name=f"docker {name}") for name in _DOCKER_OBJECTS),
    CommandGroup(
        name="docker compose",
        options="-f|--file=project -p|--project-name=name --project-directory=project --profile=name --ansi=word"
        " --progress=word",
    ),
    CommandGroup(name="kubectl", options=_KUBECTL, shared=True),
    *(CommandGroup(name=f"kubectl {name}", options=_KUBECTL, shared=True) for name in ("rollout", "config", "auth")),
    CommandGroup(name="helm", options="-n|--namespace=name --kube-context=name", shared=True),
    CommandGroup(name="openssl"),
)

ALIASES: Final = {"docker-compose": "docker compose", "podman": "docker"}
"""Other names of the same commands."""
