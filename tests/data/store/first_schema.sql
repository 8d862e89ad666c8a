BEGIN TRANSACTION;
CREATE TABLE lb_attempts (
	backfill_id VARCHAR(50) NOT NULL, 
	run_id VARCHAR(100) NOT NULL, 
	attempt INTEGER NOT NULL, 
	token VARCHAR(100) NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	handle TEXT, 
	submitted_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	result JSON, 
	error TEXT, 
	PRIMARY KEY (backfill_id, run_id, attempt), 
	FOREIGN KEY(backfill_id, run_id) REFERENCES lb_runs (backfill_id, run_id), 
	UNIQUE (token)
);
INSERT INTO "lb_attempts" VALUES('b-20240401-000000-abcd','r0',1,'t-1','succeeded','h','2024-04-01 00:00:00.000000','2024-04-01 00:00:05.000000','{"outputs": [], "inputs": []}',NULL);
INSERT INTO "lb_attempts" VALUES('b-20240401-000000-abcd','r1',1,'t-2','queued',NULL,'2024-04-01 00:00:06.000000',NULL,NULL,NULL);
CREATE TABLE lb_backfills (
	id VARCHAR(50) NOT NULL, 
	plan_id VARCHAR(100) NOT NULL, 
	"plan" JSON NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	description VARCHAR(1000) NOT NULL, 
	reason TEXT NOT NULL, 
	parameters JSON NOT NULL, 
	code_version VARCHAR(200) NOT NULL, 
	submitted_by VARCHAR(200) NOT NULL, 
	submitted_at DATETIME NOT NULL, 
	scheduled_for DATETIME, 
	expires_at DATETIME, 
	updated_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	wish VARCHAR(20), 
	deleted BOOLEAN NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "lb_backfills" VALUES('b-20240401-000000-abcd','sha256:0','{"kind": "plan", "schema_version": 1, "runs": []}','running','three bad hours','a fault','{"rate": 2}','abc','ann','2024-04-01 00:00:00.000000',NULL,NULL,'2024-04-01 00:00:07.000000',NULL,'pause',0);
CREATE TABLE lb_events (
	id INTEGER NOT NULL, 
	backfill_id VARCHAR(50) NOT NULL, 
	run_id VARCHAR(100), 
	at DATETIME NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	detail JSON NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(backfill_id) REFERENCES lb_backfills (id)
);
INSERT INTO "lb_events" VALUES(1,'b-20240401-000000-abcd',NULL,'2024-04-01 00:00:00.000000','created','{}');
INSERT INTO "lb_events" VALUES(2,'b-20240401-000000-abcd',NULL,'2024-04-01 00:00:00.000000','leased','{"owner": "host process 1", "fence": 1}');
INSERT INTO "lb_events" VALUES(3,'b-20240401-000000-abcd','r0','2024-04-01 00:00:00.000000','submitted','{"attempt": 1}');
INSERT INTO "lb_events" VALUES(4,'b-20240401-000000-abcd','r0','2024-04-01 00:00:00.000000','running','{"attempt": 1}');
INSERT INTO "lb_events" VALUES(5,'b-20240401-000000-abcd','r0','2024-04-01 00:00:05.000000','succeeded','{"attempt": 1}');
INSERT INTO "lb_events" VALUES(6,'b-20240401-000000-abcd','r1','2024-04-01 00:00:06.000000','submitted','{"attempt": 1}');
INSERT INTO "lb_events" VALUES(7,'b-20240401-000000-abcd',NULL,'2024-04-01 00:00:07.000000','asked','{"wish": "pause"}');
CREATE TABLE lb_leases (
	backfill_id VARCHAR(50) NOT NULL, 
	owner VARCHAR(200), 
	fence BIGINT NOT NULL, 
	expires_at DATETIME NOT NULL, 
	PRIMARY KEY (backfill_id), 
	FOREIGN KEY(backfill_id) REFERENCES lb_backfills (id)
);
INSERT INTO "lb_leases" VALUES('b-20240401-000000-abcd','host process 1',1,'2024-04-01 00:00:30.000000');
CREATE TABLE lb_locks (
	backfill_id VARCHAR(50) NOT NULL, 
	namespace TEXT NOT NULL, 
	name TEXT NOT NULL, 
	partitions JSON NOT NULL, 
	PRIMARY KEY (backfill_id, namespace, name), 
	FOREIGN KEY(backfill_id) REFERENCES lb_backfills (id)
);
INSERT INTO "lb_locks" VALUES('b-20240401-000000-abcd','n','r0','["2024-03-01..2024-03-03"]');
CREATE TABLE lb_meta (
	name VARCHAR(50) NOT NULL, 
	value VARCHAR(200) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "lb_meta" VALUES('store_id','316f509f67da41fb85ba426809317657');
CREATE TABLE lb_runs (
	backfill_id VARCHAR(50) NOT NULL, 
	run_id VARCHAR(100) NOT NULL, 
	position INTEGER NOT NULL, 
	job_namespace TEXT NOT NULL, 
	job_name TEXT NOT NULL, 
	partitions JSON NOT NULL, 
	count BIGINT NOT NULL, 
	wave INTEGER NOT NULL, 
	engine VARCHAR(100), 
	state VARCHAR(20) NOT NULL, 
	attempt INTEGER NOT NULL, 
	started_at DATETIME, 
	ended_at DATETIME, 
	error TEXT, 
	PRIMARY KEY (backfill_id, run_id), 
	FOREIGN KEY(backfill_id) REFERENCES lb_backfills (id)
);
INSERT INTO "lb_runs" VALUES('b-20240401-000000-abcd','r0',0,'n','r0','["2024-03-01..2024-03-03"]',1,1,'fake','succeeded',1,'2024-04-01 00:00:00.000000','2024-04-01 00:00:05.000000',NULL);
INSERT INTO "lb_runs" VALUES('b-20240401-000000-abcd','r1',1,'n','r1','["2024-03-01"]',1,2,'fake','submitted',1,'2024-04-01 00:00:06.000000',NULL,NULL);
INSERT INTO "lb_runs" VALUES('b-20240401-000000-abcd','r2',2,'n','r2','["2024-03-01"]',1,3,'fake','pending',0,NULL,NULL,NULL);
CREATE TABLE lb_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT lb_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "lb_version" VALUES('0001');
CREATE INDEX lb_backfills_submitted ON lb_backfills (submitted_at);
CREATE INDEX lb_events_backfill ON lb_events (backfill_id, id);
CREATE INDEX lb_locks_dataset ON lb_locks (namespace, name);
COMMIT;
