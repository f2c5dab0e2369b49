CREATE TABLE `addresses` (
  `node` varbinary(255) NOT NULL,
  `address` varbinary(512) NOT NULL,
  PRIMARY KEY (`node`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `attempts` (
  `crawl` int(10) unsigned NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `at_ms` bigint(20) NOT NULL,
  `code` bigint(20) NOT NULL,
  `errors` bigint(20) NOT NULL,
  `wait` double DEFAULT NULL,
  `elapsed_ms` bigint(20) NOT NULL,
  `kind` mediumtext NOT NULL,
  `url` mediumtext NOT NULL,
  `worker` mediumtext NOT NULL,
  `detail` mediumtext NOT NULL,
  PRIMARY KEY (`crawl`,`fingerprint`,`at_ms`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
 PARTITION BY RANGE (`at_ms`)
(PARTITION `rest` VALUES LESS THAN MAXVALUE ENGINE = InnoDB);
INSERT INTO `attempts` VALUES (1,1,1000,200,0,NULL,100,'ok','http://example.org/1','','');
INSERT INTO `attempts` VALUES (1,1,2000,200,0,NULL,100,'ok','http://example.org/1','','');
CREATE TABLE `blocks` (
  `host` varbinary(512) NOT NULL,
  `until_ms` bigint(20) NOT NULL,
  `reason` mediumtext NOT NULL,
  PRIMARY KEY (`host`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `blocks` VALUES (0x612E6F7267,5000,'429');
CREATE TABLE `bodies` (
  `crawl` int(10) unsigned NOT NULL,
  `place` bigint(20) NOT NULL,
  `digest` varbinary(16) NOT NULL,
  `file` varbinary(255) NOT NULL,
  `start` bigint(20) unsigned NOT NULL,
  `length` bigint(20) unsigned NOT NULL,
  `body` longblob NOT NULL,
  PRIMARY KEY (`crawl`,`place`,`digest`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `bodies` VALUES (1,119902634467822534,0x496B2D48B4F3FF31378D68FDCB2DCE5D,'',0,20,0x28B52FFD20C85D00002074776F200100C1294704);
INSERT INTO `bodies` VALUES (1,119902634467822535,0x9333B0E233283A388A6B0659801049DD,'',0,20,0x28B52FFD20C85D0000206F6E65200100C1294704);
INSERT INTO `bodies` VALUES (1,119902634467822536,0xA7937B64B8CAA58F03721BB6BACF5C78,'',0,14,0x28B52FFD20052900006669727374);
INSERT INTO `bodies` VALUES (1,119902634498310454,0x16367AACB67A4A017C8DA8AB95682CCB,'',0,15,0x28B52FFD20063100007365636F6E64);
INSERT INTO `bodies` VALUES (2,119902634467822537,0x3FB50897E9F78C45E70F9734C48C8852,'',0,27,0x28B52FFD20129100006F6620612064656C6574656420637261776C);
CREATE TABLE `clock` (
  `only_row` tinyint(4) NOT NULL,
  `value` bigint(20) NOT NULL,
  PRIMARY KEY (`only_row`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `clock` VALUES (1,1);
CREATE TABLE `contents` (
  `crawl` int(10) unsigned NOT NULL,
  `place` bigint(20) NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `elapsed_ms` bigint(20) NOT NULL,
  `depth` bigint(20) NOT NULL,
  `truncated` tinyint(4) NOT NULL,
  `url` mediumtext NOT NULL,
  `final_url` mediumtext DEFAULT NULL,
  `language` mediumtext NOT NULL,
  `encoding` mediumtext NOT NULL,
  `title` mediumtext NOT NULL,
  `headers` mediumtext NOT NULL,
  `fields` mediumtext DEFAULT NULL,
  `links` longblob NOT NULL,
  `text` longblob NOT NULL,
  PRIMARY KEY (`crawl`,`place`,`fingerprint`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `contents` VALUES (1,119902634473968440,1,9,1,0,'http://example.org/1',NULL,'en','utf-8','title 1000','{\"a\":\"b\"}',NULL,0x28B52FFD200F7900009194A9687474703A2F2F612F010000,0x28B52FFD2006310000746578742031);
INSERT INTO `contents` VALUES (1,119902634473968441,2,9,1,0,'http://example.org/2',NULL,'en','utf-8','title 1000','{\"a\":\"b\"}',NULL,'',0x28B52FFD2006310000746578742032);
INSERT INTO `contents` VALUES (1,119902634473968442,3,9,1,0,'http://example.org/3',NULL,'en','utf-8','title 1000','{\"a\":\"b\"}',NULL,'',0x28B52FFD2006310000746578742033);
INSERT INTO `contents` VALUES (1,119902634473968443,4,9,1,0,'http://example.org/4',NULL,'en','utf-8','title 1000','{\"a\":\"b\"}',NULL,'','');
INSERT INTO `contents` VALUES (1,119902634501769187,5,9,1,0,'http://example.org/5',NULL,'en','utf-8','title 2000','{\"a\":\"b\"}','{\"price\":3}','',0x28B52FFD2006310000746578742035);
INSERT INTO `contents` VALUES (2,119902634473968445,1,0,0,0,'http://example.org/1',NULL,'','','','{}',NULL,'',0x28B52FFD2004210000676F6E65);
CREATE TABLE `counters` (
  `name` varbinary(32) NOT NULL,
  `value` bigint(20) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `counters` VALUES (0x637261776C73,2);
CREATE TABLE `crawls` (
  `id` int(10) unsigned NOT NULL,
  `name` varbinary(255) NOT NULL,
  `living` varbinary(255) DEFAULT NULL,
  `state` varbinary(16) NOT NULL,
  `reason` mediumtext NOT NULL,
  `revision` int(10) unsigned NOT NULL DEFAULT 1,
  `created_ms` bigint(20) NOT NULL,
  `started_ms` bigint(20) NOT NULL DEFAULT 0,
  `finished_ms` bigint(20) NOT NULL DEFAULT 0,
  `deleted` tinyint(4) NOT NULL DEFAULT 0,
  `options` mediumtext NOT NULL,
  `roots` mediumtext NOT NULL,
  `version` int(10) unsigned NOT NULL DEFAULT 1,
  PRIMARY KEY (`id`),
  UNIQUE KEY `crawls_living` (`living`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `crawls` VALUES (1,0x6E657773,0x6E657773,0x616374697665,'',1,5,5,0,0,'{\"seeds\":[],\"scope\":\"host\",\"include\":[],\"exclude\":[],\"depth\":50,\"max_pages\":0,\"max_bytes\":0,\"max_seconds\":0,\"max_body_bytes\":10485760,\"bodies\":\"text\",\"delay\":1.0,\"slots\":1,\"tries\":5,\"order\":\"breadth\",\"user_agent\":\"greencrawl/0.1\",\"contact\":\"\",\"hook\":\"\",\"weight\":1}','[\"example.org\"]',1);
INSERT INTO `crawls` VALUES (2,0x676F6E65,NULL,0x616374697665,'',1,5,5,0,1,'{\"seeds\":[],\"scope\":\"host\",\"include\":[],\"exclude\":[],\"depth\":50,\"max_pages\":0,\"max_bytes\":0,\"max_seconds\":0,\"max_body_bytes\":10485760,\"bodies\":\"text\",\"delay\":1.0,\"slots\":1,\"tries\":5,\"order\":\"breadth\",\"user_agent\":\"greencrawl/0.1\",\"contact\":\"\",\"hook\":\"\",\"weight\":1}','[]',1);
CREATE TABLE `debts` (
  `node` varbinary(255) NOT NULL,
  `since` bigint(20) NOT NULL,
  `serial` bigint(20) NOT NULL,
  PRIMARY KEY (`node`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `debts` VALUES (0x6E30,1,0);
CREATE TABLE `delays` (
  `host` varbinary(512) NOT NULL,
  `delay_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`host`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `delays` VALUES (0x612E6F7267,1500);
CREATE TABLE `digests` (
  `crawl` int(10) unsigned NOT NULL,
  `digest` varbinary(16) NOT NULL,
  `place` bigint(20) NOT NULL,
  `bytes` int(10) unsigned NOT NULL,
  PRIMARY KEY (`crawl`,`digest`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `digests` VALUES (1,0x16367AACB67A4A017C8DA8AB95682CCB,119902634498310454,15);
INSERT INTO `digests` VALUES (1,0x496B2D48B4F3FF31378D68FDCB2DCE5D,119902634467822534,20);
INSERT INTO `digests` VALUES (1,0x9333B0E233283A388A6B0659801049DD,119902634467822535,20);
INSERT INTO `digests` VALUES (1,0xA7937B64B8CAA58F03721BB6BACF5C78,119902634467822536,14);
INSERT INTO `digests` VALUES (2,0x3FB50897E9F78C45E70F9734C48C8852,119902634467822537,27);
CREATE TABLE `duties` (
  `name` varbinary(64) NOT NULL,
  `holder` varbinary(64) NOT NULL,
  `epoch` bigint(20) NOT NULL,
  `until_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `finals` (
  `crawl` int(10) unsigned NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `stamp` bigint(20) NOT NULL,
  `state` varbinary(16) NOT NULL,
  `kind` mediumtext NOT NULL,
  `code` bigint(20) NOT NULL,
  `depth` bigint(20) NOT NULL,
  `level` bigint(20) NOT NULL,
  `at_ms` bigint(20) NOT NULL,
  `url` mediumtext NOT NULL,
  `detail` mediumtext NOT NULL,
  PRIMARY KEY (`crawl`,`fingerprint`),
  KEY `finals_by_state` (`crawl`,`state`,`fingerprint`),
  KEY `finals_by_stamp` (`crawl`,`stamp`,`fingerprint`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `finals` VALUES (1,9,1,0x64656164,'timeout',0,2,3,1000,'http://example.org/9','after 5 tries');
CREATE TABLE `frontier` (
  `only_row` tinyint(4) NOT NULL,
  `identity` mediumtext NOT NULL,
  PRIMARY KEY (`only_row`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `frontier` VALUES (1,'{\"id\":\"f1\",\"secret\":18446744073709551615,\"partitions\":64,\"suffixes\":\"psl\",\"canonicaliser\":1,\"layout\":1,\"nodes\":[\"n0\"],\"placement\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}');
CREATE TABLE `hook_failures` (
  `crawl` int(10) unsigned NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `function` varbinary(64) NOT NULL,
  `at_ms` bigint(20) NOT NULL,
  `url` mediumtext NOT NULL,
  `message` varbinary(800) NOT NULL,
  PRIMARY KEY (`crawl`,`fingerprint`,`function`),
  KEY `hook_failures_by_message` (`crawl`,`function`,`message`,`fingerprint`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `hook_sums` (
  `crawl` int(10) unsigned NOT NULL,
  `function` varbinary(64) NOT NULL,
  `message` varbinary(800) NOT NULL,
  `pages` bigint(20) NOT NULL,
  PRIMARY KEY (`crawl`,`function`,`message`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `hosts` (
  `crawl` int(10) unsigned NOT NULL,
  `host` varbinary(512) NOT NULL,
  `slot` tinyint(3) unsigned NOT NULL,
  `attempts` bigint(20) NOT NULL,
  `answers` bigint(20) NOT NULL,
  `elapsed_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`crawl`,`host`,`slot`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `hosts` VALUES (1,0x6578616D706C652E6F7267,6,2,2,200);
CREATE TABLE `limits` (
  `crawl` int(10) unsigned NOT NULL,
  `pages` bigint(20) NOT NULL,
  PRIMARY KEY (`crawl`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `migrations` (
  `number` int(11) NOT NULL,
  `name` varbinary(100) NOT NULL,
  `checksum` varbinary(64) NOT NULL,
  `applied_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `migrations` VALUES (1,0x7072655F636F6E74656E74,0x38386163363939363661633666393230653165666632303034343930663439613934313133346264366136663132333031393165353434653235303664646265,1);
INSERT INTO `migrations` VALUES (2,0x7072655F647574696573,0x63333262643333363661363434623865366262643234643664366666643364363066313936643832663661396637396333333436316332306530383864336433,1);
CREATE TABLE `nodes` (
  `id` varbinary(255) NOT NULL,
  `epoch` bigint(20) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `nodes` VALUES ('',0);
INSERT INTO `nodes` VALUES (0x6E30,4);
CREATE TABLE `overflow` (
  `crawl` int(10) unsigned NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `id` bigint(20) NOT NULL,
  `partition_no` int(11) NOT NULL,
  `queued` bigint(20) NOT NULL DEFAULT 0,
  `level` int(11) NOT NULL,
  `depth` bigint(20) NOT NULL,
  `redirects` bigint(20) NOT NULL,
  `host` varbinary(512) NOT NULL,
  `url` mediumtext NOT NULL,
  `stamp` bigint(20) NOT NULL DEFAULT 0,
  PRIMARY KEY (`crawl`,`fingerprint`),
  UNIQUE KEY `overflow_by_id` (`partition_no`,`id`),
  KEY `overflow_waiting` (`queued`,`crawl`,`partition_no`,`host`,`level`,`id`),
  KEY `overflow_queued` (`partition_no`,`queued`),
  KEY `overflow_by_stamp` (`partition_no`,`stamp`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `overflow` VALUES (1,50,119902634528705114,7,0,3,0,0,0x612E6F7267,'http://a.org/50',1);
INSERT INTO `overflow` VALUES (1,51,119902634528705115,7,1099511627777,3,0,0,0x612E6F7267,'http://a.org/51',1);
CREATE TABLE `pages` (
  `crawl` int(10) unsigned NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `stamp` bigint(20) NOT NULL,
  `place` bigint(20) NOT NULL,
  `fetched_ms` bigint(20) NOT NULL,
  `status` smallint(6) NOT NULL,
  `body_bytes` int(10) unsigned NOT NULL,
  `digest` varbinary(16) NOT NULL,
  `host` int(10) unsigned NOT NULL,
  `wide` int(10) unsigned NOT NULL,
  PRIMARY KEY (`crawl`,`fingerprint`),
  KEY `pages_by_stamp` (`crawl`,`stamp`,`place`,`fingerprint`,`status`,`fetched_ms`),
  KEY `pages_by_host` (`crawl`,`host`,`stamp`,`place`,`fingerprint`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `pages` VALUES (1,1,1,119902634473968440,1000,200,200,0x9333B0E233283A388A6B0659801049DD,2690200287,385);
INSERT INTO `pages` VALUES (1,2,1,119902634473968441,1000,200,200,0x496B2D48B4F3FF31378D68FDCB2DCE5D,2690200287,361);
INSERT INTO `pages` VALUES (1,3,1,119902634473968442,1000,200,200,0x9333B0E233283A388A6B0659801049DD,2690200287,361);
INSERT INTO `pages` VALUES (1,4,1,119902634473968443,1000,301,0,'',2690200287,346);
INSERT INTO `pages` VALUES (1,5,1,119902634501769187,2000,200,6,0x16367AACB67A4A017C8DA8AB95682CCB,2690200287,372);
INSERT INTO `pages` VALUES (2,1,1,119902634473968445,1000,200,18,0x3FB50897E9F78C45E70F9734C48C8852,2690200287,335);
CREATE TABLE `purges` (
  `id` bigint(20) NOT NULL,
  `crawl` int(10) unsigned NOT NULL,
  `host` varbinary(512) NOT NULL DEFAULT '',
  `asked_ms` bigint(20) NOT NULL,
  `total` bigint(20) NOT NULL DEFAULT 0,
  `removed` bigint(20) NOT NULL DEFAULT 0,
  PRIMARY KEY (`id`),
  UNIQUE KEY `purges_by_host` (`crawl`,`host`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `purges` VALUES (119902634549695435,2,'',5,0,0);
INSERT INTO `purges` VALUES (119902634552273100,1,0x612E6F7267,5,0,0);
CREATE TABLE `refusals` (
  `worker` varbinary(100) NOT NULL,
  `crawl` int(10) unsigned NOT NULL,
  `host` varbinary(1100) NOT NULL,
  `hook` varbinary(1100) NOT NULL,
  `reason` mediumtext NOT NULL,
  `until_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`worker`,`crawl`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `seed_batches` (
  `id` bigint(20) NOT NULL,
  `crawl` int(10) unsigned NOT NULL,
  `stamp` bigint(20) NOT NULL,
  `pending` tinyint(4) NOT NULL,
  `forced` tinyint(4) NOT NULL,
  `urls` longblob NOT NULL,
  PRIMARY KEY (`id`),
  KEY `seed_batches_pending` (`pending`,`id`),
  KEY `seed_batches_by_crawl` (`crawl`,`id`),
  KEY `seed_batches_by_stamp` (`forced`,`stamp`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `seed_batches` VALUES (119902634518172998,1,1,1,1,0x28B52FFD200F7900009194A9687474703A2F2F732F000000);
CREATE TABLE `sums` (
  `crawl` int(10) unsigned NOT NULL,
  `slot` tinyint(3) unsigned NOT NULL,
  `pages` bigint(20) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  `gone` bigint(20) NOT NULL,
  `excluded` bigint(20) NOT NULL,
  PRIMARY KEY (`crawl`,`slot`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `sums` VALUES (1,6,4,606,1,0,0);
INSERT INTO `sums` VALUES (2,6,1,18,0,0,0);
CREATE TABLE `times` (
  `crawl` int(10) unsigned NOT NULL,
  `spent_ms` bigint(20) NOT NULL,
  `looked_ms` bigint(20) NOT NULL,
  PRIMARY KEY (`crawl`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `versions` (
  `crawl` int(10) unsigned NOT NULL,
  `fingerprint` bigint(20) NOT NULL,
  `fetched_ms` bigint(20) NOT NULL,
  `status` smallint(6) NOT NULL,
  `body_bytes` int(10) unsigned NOT NULL,
  `digest` varbinary(16) NOT NULL,
  PRIMARY KEY (`crawl`,`fingerprint`,`fetched_ms`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO `versions` VALUES (1,5,1000,200,5,0xA7937B64B8CAA58F03721BB6BACF5C78);
