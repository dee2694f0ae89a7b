#!/usr/bin/env bash
# One Apache Kafka broker on loopback, for tests. See README.md beside this file.
set -euo pipefail

usage() {
	cat >&2 <<'END'
usage: kafka.sh start DIR [PORT]     start a broker; prints its address
       kafka.sh stop DIR             stop it
       kafka.sh run DIR -- COMMAND   start on an empty store, run COMMAND with
                                     STREAMD_TEST_BROKERS set, and
                                     STREAMD_TEST_SASL_BROKERS for logins, stop; the exit
                                     code is COMMAND's. COMMAND may stop the broker
                                     of STREAMD_TEST_BROKER_DIR and start it again
environment: KAFKA_VERSION  3.9.1 (default), another 3.x, or a 4.x
             KAFKA_LIBS     folder that keeps the jars of each version (default: DIR)
             KAFKA_HEAP     the broker's heap (default: 768m)
             KAFKA_REAUTH   ms after which a login has to be renewed (default: 3000)
END
	exit 2
}

fail() {
	echo "kafka.sh: $*" >&2
	exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${KAFKA_VERSION:-3.9.1}
heap=${KAFKA_HEAP:-768m}
reauth=${KAFKA_REAUTH:-3000}
ready_seconds=300
stop_seconds=30

need() {
	local missing=()
	for program in "$@"; do
		command -v "$program" >/dev/null || missing+=("$program")
	done
	[ ${#missing[@]} -eq 0 ] || fail "missing: ${missing[*]} (Debian: apt-get install openjdk-17-jre-headless maven)"
}

# fetch_jars leaves the broker's jars in $libs, whole or not at all.
fetch_jars() {
	[ ! -d "$libs" ] || return 0
	need mvn
	local part="$libs.part.$$"
	if ! mvn -q -B -f "$here/pom.xml" -P "kafka-${version%%.*}" "-Dkafka.version=$version" \
		dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$part" \
		>"$dir/mvn.log" 2>&1; then
		rm -rf "$part"
		tail -n 20 "$dir/mvn.log" >&2
		fail "mvn could not fetch Kafka $version (all of its log: $dir/mvn.log)"
	fi
	# Another start may have been faster.
	if [ -d "$libs" ]; then rm -rf "$part"; else mv "$part" "$libs"; fi
}

# broker_pid prints the pid in the pid file if that process is our broker. Another
# process may have the number by now.
broker_pid() {
	local pid command
	[ -f "$dir/pid" ] && pid=$(cat "$dir/pid") || return 1
	if [ -d /proc/self ]; then
		command=$( (tr '\0' ' ' <"/proc/$pid/cmdline") 2>/dev/null) || return 1
	else
		command=$(ps -p "$pid" -o args=) || return 1
	fi
	case $command in
	*"kafka.Kafka $dir/server.properties"*) echo "$pid" ;;
	*) return 1 ;;
	esac
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# choose_port takes the first of some ports that is free together with the next
# two ports, which are the controller's and the one for logins.
choose_port() {
	for port in 19092 19192 19292 19392 19492; do
		listening "$port" || listening $((port + 1)) || listening $((port + 2)) || return 0
	done
	fail "ports 19092, 19192, 19292, 19392 and 19492 are in use: give one"
}

# answers asks for the metadata (key 3, version 1, no topics) and is true when the
# reply counts one broker. The listener is open long before.
answers() {
	local reply
	reply=$(
		{ exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null || exit 1
		printf '\0\0\0\016\0\003\0\001\0\0\0\001\377\377\0\0\0\0' >&3
		timeout 5 head -c 12 <&3 | od -An -v -tx1 | tr -d ' \n'
	) || return 1
	[ "${reply:8}" = 0000000100000001 ]
}

write_properties() {
	cat >"$dir/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1)),LOGIN://127.0.0.1:$((port + 2))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,LOGIN://127.0.0.1:$((port + 2))
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT
# Logins by passwords and by unsecured JSON web tokens, each for a few seconds. Passwords of SCRAM
# are made by the tests.
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
connections.max.reauth.ms=$reauth
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="plain secret";
listener.name.login.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.login.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.login.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
log.dirs=$dir/data
# A mistyped topic must be an error.
auto.create.topics.enable=false
# One broker, and no waiting for more members.
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
# 512 MiB for each partition. Retention drops whole segments.
log.segment.bytes=134217728
log.retention.bytes=536870912
log.retention.check.interval.ms=5000
log.segment.delete.delay.ms=1000
socket.request.max.bytes=104857600
END
}

start() {
	local pid began=$SECONDS
	need java od timeout
	if pid=$(broker_pid); then
		fail "a broker runs in $dir already (pid $pid)"
	fi
	[ -n "$port" ] || choose_port
	for taken in "$port" $((port + 1)) $((port + 2)); do
		! listening "$taken" || fail "port $taken is in use (the broker takes PORT, its controller PORT + 1, logins PORT + 2)"
	done
	fetch_jars
	write_properties

	local java=(java -Djava.awt.headless=true "-Dbroker.log=$dir/broker.log"
		"-Dlog4j.configuration=file:$here/log4j.properties"
		"-Dlog4j2.configurationFile=file:$here/log4j2.properties"
		-cp "$libs/*")
	if [ ! -f "$dir/data/meta.properties" ]; then
		local id
		{
			id=$("${java[@]}" kafka.tools.StorageTool random-uuid | tail -n 1) &&
				"${java[@]}" kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties"
		} >"$dir/format.log" 2>&1 || {
			tail -n 20 "$dir/format.log" >&2
			fail "the store in $dir/data could not be formatted"
		}
	fi

	rm -f "$dir/broker.log" "$dir/console.log"
	nohup "${java[@]}" "-Xms$heap" "-Xmx$heap" -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
		-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExitOnOutOfMemoryError \
		kafka.Kafka "$dir/server.properties" >"$dir/console.log" 2>&1 </dev/null &
	pid=$!
	echo "$pid" >"$dir/pid"
	echo "127.0.0.1:$port" >"$dir/address"

	local deadline=$((SECONDS + ready_seconds))
	until answers; do
		if ! kill -0 "$pid" 2>/dev/null; then
			show_logs
			rm -f "$dir/pid" "$dir/address"
			fail "the broker ended while starting (its log: $dir/broker.log)"
		fi
		if [ $SECONDS -ge $deadline ]; then
			show_logs
			stop
			fail "the broker was not ready after $ready_seconds s (its log: $dir/broker.log)"
		fi
		sleep 0.2
	done
	echo "Kafka $version ready on 127.0.0.1:$port after $((SECONDS - began)) s (pid $pid, $dir)" >&2
}

show_logs() {
	for log in console broker; do
		[ ! -s "$dir/$log.log" ] || tail -n 30 "$dir/$log.log" >&2
	done
}

# stop sends TERM, waits, and sends KILL.
stop() {
	local pid
	if pid=$(broker_pid); then
		kill -TERM "$pid"
		local deadline=$((SECONDS + stop_seconds))
		while broker_pid >/dev/null && [ $SECONDS -lt $deadline ]; do
			sleep 0.2
		done
		if broker_pid >/dev/null; then
			echo "kafka.sh: the broker (pid $pid) did not stop in $stop_seconds s: killed" >&2
			kill -KILL "$pid" || true
		fi
	fi
	rm -f "$dir/pid" "$dir/address"
}

# run passes a signal on to the command. The broker ends with either.
run() {
	if pid=$(broker_pid); then
		fail "a broker runs in $dir already (pid $pid)"
	fi
	rm -rf "$dir/data"
	local command="" code=0
	trap stop EXIT
	trap '[ -z "$command" ] || kill -TERM "$command" 2>/dev/null' INT TERM HUP
	start
	STREAMD_TEST_BROKERS="127.0.0.1:$port" STREAMD_TEST_SASL_BROKERS="127.0.0.1:$((port + 2))" STREAMD_TEST_BROKER_DIR=$dir "$@" <&0 &
	command=$!
	while :; do
		code=0
		wait "$command" || code=$?
		# A trapped signal ends the wait before the command has ended.
		kill -0 "$command" 2>/dev/null || break
	done
	exit "$code"
}

[ $# -ge 2 ] || usage
action=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
libs=${KAFKA_LIBS:-$dir}/kafka-$version
mkdir -p "${libs%/*}"
port=
shift 2
case $action in
start)
	[ $# -le 1 ] || usage
	port=${1:-}
	start
	cat "$dir/address"
	;;
stop)
	[ $# -eq 0 ] || usage
	stop
	;;
run)
	[ "${1:-}" = -- ] && [ $# -ge 2 ] || usage
	shift
	run "$@"
	;;
*) usage ;;
esac
