SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.memory_index_column_model() RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT 1$$;
CREATE FUNCTION public.memory_index_direction() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
        BEGIN
            IF "public".l2_norm(NEW.embedding) = 0 THEN
                NEW.embedding := NULL;
            END IF;
            RETURN NEW;
        END
        $$;
CREATE FUNCTION public.memory_index_forget() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$BEGIN IF to_regclass('"public"."memory_embedding_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_embedding_failures" WHERE id IN (SELECT f.id FROM "public"."memory_embedding_failures" f JOIN gone g ON g.id = f.id FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_standby_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_standby_failures" WHERE id IN (SELECT f.id FROM "public"."memory_standby_failures" f JOIN gone g ON g.id = f.id FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_truncated_texts"') IS NOT NULL THEN DELETE FROM "public"."memory_truncated_texts" WHERE (id, model) IN (SELECT t.id, t.model FROM "public"."memory_truncated_texts" t WHERE t.id IN (SELECT id FROM gone) FOR UPDATE OF t SKIP LOCKED); END IF; IF to_regclass('"public"."memory_supersessions"') IS NOT NULL THEN UPDATE "public"."memory_supersessions" SET text_hash = '', successor_hash = '', undone_at = clock_timestamp() WHERE step IN (SELECT s.step FROM "public"."memory_supersessions" s WHERE s.undone_at IS NULL AND (s.id IN (SELECT id FROM gone) OR s.superseded_by IN (SELECT id FROM gone)) FOR UPDATE SKIP LOCKED); END IF; RETURN NULL; END$$;
CREATE FUNCTION public.memory_index_forget_all() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$BEGIN IF to_regclass('"public"."memory_embedding_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_embedding_failures" WHERE id IN (SELECT f.id FROM "public"."memory_embedding_failures" f  FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_standby_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_standby_failures" WHERE id IN (SELECT f.id FROM "public"."memory_standby_failures" f  FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_truncated_texts"') IS NOT NULL THEN DELETE FROM "public"."memory_truncated_texts" WHERE (id, model) IN (SELECT t.id, t.model FROM "public"."memory_truncated_texts" t WHERE true FOR UPDATE OF t SKIP LOCKED); END IF; IF to_regclass('"public"."memory_supersessions"') IS NOT NULL THEN UPDATE "public"."memory_supersessions" SET text_hash = '', successor_hash = '', undone_at = clock_timestamp() WHERE step IN (SELECT s.step FROM "public"."memory_supersessions" s WHERE s.undone_at IS NULL AND (true) FOR UPDATE SKIP LOCKED); END IF; RETURN NULL; END$$;
CREATE FUNCTION public.memory_index_guard() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog'
    AS $$
        BEGIN
            IF TG_OP = 'UPDATE' AND ((NEW.content IS DISTINCT FROM OLD.content)) THEN
                NEW.embedding := NULL;
            END IF;
            IF NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL)) THEN
                NEW.embedding := NULL;
            ELSIF NEW.embedding IS NULL THEN
                PERFORM pg_catalog.pg_notify('memory_index_pending', TG_TABLE_NAME);
            END IF;
            IF TG_OP = 'UPDATE' AND ((NEW.content IS DISTINCT FROM OLD.content) OR NEW.id <> OLD.id OR NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL))) THEN
                DELETE FROM "public"."memory_embedding_failures" WHERE id IN (SELECT id FROM "public"."memory_embedding_failures" WHERE id = OLD.id FOR UPDATE SKIP LOCKED); DELETE FROM "public"."memory_standby_failures" WHERE id IN (SELECT id FROM "public"."memory_standby_failures" WHERE id = OLD.id FOR UPDATE SKIP LOCKED); IF to_regclass('"public"."memory_truncated_texts"') IS NOT NULL THEN DELETE FROM "public"."memory_truncated_texts" WHERE (id, model) IN (SELECT t.id, t.model FROM "public"."memory_truncated_texts" t WHERE t.id = OLD.id FOR UPDATE OF t SKIP LOCKED); END IF; IF to_regclass('"public"."memory_supersessions"') IS NOT NULL THEN UPDATE "public"."memory_supersessions" SET text_hash = '', successor_hash = '', undone_at = clock_timestamp() WHERE step IN (SELECT s.step FROM "public"."memory_supersessions" s WHERE s.undone_at IS NULL AND (s.id = OLD.id OR s.superseded_by = OLD.id) FOR UPDATE SKIP LOCKED); END IF;
            END IF;
            RETURN NEW;
        END
        $$;
CREATE FUNCTION public.memory_index_guard_standby() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
        BEGIN
            IF current_setting('memory_index.writer', true) IS DISTINCT FROM 'guarded' THEN
                IF NEW.embedding IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.embedding IS NULL OR NEW.embedding OPERATOR("public".<>) OLD.embedding) THEN
                    NEW.embedding := NULL;
                    PERFORM pg_catalog.pg_notify('memory_index_pending', TG_TABLE_NAME);
                END IF;
                IF NEW.embedding_standby IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.embedding_standby IS NULL OR NEW.embedding_standby OPERATOR("public".<>) OLD.embedding_standby) THEN
                    NEW.embedding_standby := NULL;
                END IF;
            END IF;
            IF TG_OP = 'UPDATE' AND ((NEW.content IS DISTINCT FROM OLD.content)) THEN
                NEW.embedding_standby := NULL;
            END IF;
            IF NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL)) OR "public".l2_norm(NEW.embedding_standby) = 0 THEN
                NEW.embedding_standby := NULL;
            END IF;
            RETURN NEW;
        END
        $$;
CREATE FUNCTION public.memory_index_text_hash(content text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT pg_catalog.md5('c440734f6af1a21ff04bfce78b8c3c372b34a8d6e0599f33ed3631a891e1c57d' OPERATOR(pg_catalog.||) pg_catalog.md5('c440734f6af1a21ff04bfce78b8c3c372b34a8d6e0599f33ed3631a891e1c57d' OPERATOR(pg_catalog.||) COALESCE(content, '')))$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.memories (
    id integer NOT NULL,
    content text NOT NULL,
    category character varying(50) DEFAULT 'facts'::character varying,
    tags text DEFAULT ''::text,
    expanded_keywords text DEFAULT ''::text,
    importance real DEFAULT 0.5,
    is_sensitive boolean DEFAULT false NOT NULL,
    user_id character varying(100) DEFAULT 'default'::character varying NOT NULL,
    deleted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    search_vector tsvector GENERATED ALWAYS AS ((((setweight(to_tsvector('english'::regconfig, COALESCE(content, ''::text)), 'A'::"char") || setweight(to_tsvector('english'::regconfig, COALESCE(expanded_keywords, ''::text)), 'B'::"char")) || setweight(to_tsvector('english'::regconfig, COALESCE(tags, ''::text)), 'C'::"char")) || setweight(to_tsvector('english'::regconfig, (COALESCE(category, ''::character varying))::text), 'D'::"char"))) STORED,
    embedding public.halfvec(96),
    CONSTRAINT memory_index_no_private_embedding CHECK (((embedding IS NULL) OR ((NOT (is_sensitive IS NOT FALSE)) AND (deleted_at IS NULL))))
);
ALTER TABLE ONLY public.memories ALTER COLUMN search_vector SET STATISTICS 300;
CREATE SEQUENCE public.memories_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.memories_id_seq OWNED BY public.memories.id;
CREATE TABLE public.memory_embedding_failures (
    id bigint NOT NULL,
    text_hash text NOT NULL,
    attempts integer NOT NULL,
    error_class text NOT NULL,
    next_attempt timestamp with time zone NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT memory_embedding_failures_attempts_check CHECK ((attempts > 0))
);
CREATE TABLE public.memory_index_alembic_version__memories (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.memory_index_models (
    id integer NOT NULL,
    name text NOT NULL,
    digest text,
    dimensions integer NOT NULL,
    pooling text,
    max_tokens integer,
    query_prefix text DEFAULT ''::text NOT NULL,
    document_prefix text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    embedder_url text,
    CONSTRAINT memory_index_models_dimensions_check CHECK ((dimensions > 0))
);
ALTER TABLE public.memory_index_models ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_index_models_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.memory_index_state (
    singleton boolean DEFAULT true NOT NULL,
    table_name text NOT NULL,
    active_model integer NOT NULL,
    next_model integer,
    column_adopted boolean NOT NULL,
    discarding boolean NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    table_oid regclass,
    wanted_at timestamp with time zone,
    column_names jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT memory_index_state_singleton_check CHECK (singleton)
);
CREATE TABLE public.memory_index_swaps (
    id integer NOT NULL,
    stage text NOT NULL,
    from_model integer NOT NULL,
    to_model integer NOT NULL,
    gate jsonb,
    message text DEFAULT ''::text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    flipped_at timestamp with time zone,
    CONSTRAINT memory_index_swaps_stage_check CHECK ((stage = ANY (ARRAY['planned'::text, 'filling'::text, 'indexing'::text, 'gating'::text, 'ready'::text, 'refused'::text, 'flipped'::text, 'finished'::text, 'aborted'::text])))
);
ALTER TABLE public.memory_index_swaps ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_index_swaps_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.memory_standby_failures (
    id bigint CONSTRAINT memory_embedding_failures_id_not_null NOT NULL,
    text_hash text CONSTRAINT memory_embedding_failures_text_hash_not_null NOT NULL,
    attempts integer CONSTRAINT memory_embedding_failures_attempts_not_null NOT NULL,
    error_class text CONSTRAINT memory_embedding_failures_error_class_not_null NOT NULL,
    next_attempt timestamp with time zone CONSTRAINT memory_embedding_failures_next_attempt_not_null NOT NULL,
    updated_at timestamp with time zone DEFAULT now() CONSTRAINT memory_embedding_failures_updated_at_not_null NOT NULL,
    CONSTRAINT memory_embedding_failures_attempts_check CHECK ((attempts > 0))
);
CREATE TABLE public.memory_supersessions (
    step bigint NOT NULL,
    run bigint NOT NULL,
    action text NOT NULL,
    id bigint NOT NULL,
    superseded_by bigint NOT NULL,
    text_hash text NOT NULL,
    successor_hash text NOT NULL,
    link_id bigint,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    undone_at timestamp with time zone,
    CONSTRAINT memory_supersessions_action_check CHECK ((action = ANY (ARRAY['UPDATE'::text, 'SUPERSEDE'::text]))),
    CONSTRAINT memory_supersessions_check CHECK ((superseded_by <> id))
);
ALTER TABLE public.memory_supersessions ALTER COLUMN step ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_supersessions_step_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.memory_truncated_texts (
    id bigint NOT NULL,
    model integer NOT NULL
);
ALTER TABLE ONLY public.memories ALTER COLUMN id SET DEFAULT nextval('public.memories_id_seq'::regclass);
INSERT INTO public.memories VALUES
	(1, 'goradu vozega punoga gumase nalepa kozezu zanuzu zigizo gituta tosidu zozuba kosifu kugasi gefudo', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0,0.038970947,0,0,0,-0.12988281,0,0,-0.051971436,0,0,0,0,0,-0.09094238,0.038970947,0.038970947,0,0,-0.16882324,-0.077941895,0,0,-0.038970947,0.038970947,0.038970947,-0.038970947,0.077941895,-0.16882324,0,0,0.20788574,0,0,0.038970947,-0.038970947,-0.09094238,-0.038970947,0,0,0.038970947,-0.038970947,-0.09094238,0.038970947,0,-0.038970947,0,-0.12988281,0.12988281,-0.077941895,0,-0.09094238,-0.077941895,0,0,0,0.12988281,0,0,0,0.038970947,0,0.038970947,0,0,0,0.077941895,0.038970947,0,0,0,-0.12988281,0.038970947,-0.038970947,0.077941895,0.038970947,0,0.038970947,0,0,0,0,-0.038970947,0,0,0.038970947,0,-0.09094238,0,0,0,0,0,0]'),
	(2, 'mapozu bogida sinani bigudo bidiba guzapu vinera kokizu fotese bokepo vibisa sokifa suleku dukeli', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,-0.1381836,0.04144287,0,0,0,0.04144287,0.04144287,-0.04144287,0,0,0,0,-0.09667969,0,0.04144287,0.04144287,0,0,0.04144287,0,-0.04144287,0.04144287,0,0.04144287,-0.1381836,0,0.04144287,0,0.04144287,-0.04144287,0,-0.04144287,0,0,0.04144287,0,0.04144287,0,-0.04144287,0,0,0.1381836,-0.04144287,0,0.04144287,0,-0.04144287,-0.1381836,0.04144287,0,-0.12432861,0,0,0.04144287,0,0,-0.04144287,0,0,0.1381836,0.04144287,0,0.04144287,0.04144287,-0.04144287,0.1381836,0,0.04144287,0,0.1381836,-0.04144287,0,0,0,0,-0.04144287,0,0,0.04144287,0.04144287,0,-0.09667969,0,-0.04144287,0.17956543,0.1381836,0,0,-0.04144287,0,0.1381836,0,-0.04144287,0,-0.04144287]'),
	(3, 'monire tamugi kusali senade vinegu nereta sakufe bisave sumore vefata nufapu sumore vovelo vivila', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,-0.031311035,0,0.06262207,0,0,0,0.30273438,0,0,-0.10437012,0.07305908,0,0,0,0.031311035,-0.06262207,-0.031311035,0.031311035,0.031311035,-0.031311035,0,0.031311035,0.031311035,0,-0.13574219,0.031311035,0,0,0,-0.031311035,-0.031311035,0,0,0.06262207,0,0,0.031311035,0,0.031311035,0,0,0,0,0.031311035,0.031311035,0.10437012,0,-0.10437012,0,0,0,0.031311035,0,-0.10437012,0.031311035,0.06262207,0,0.031311035,0,0.031311035,0,0,0,0,-0.20874023,0.031311035,0.031311035,0,0,0.031311035,-0.10437012,-0.031311035,0,-0.10437012,0,0,0.031311035,0.06262207,0,0,0.06262207,-0.031311035,0,-0.031311035,0,0.06262207,-0.031311035,-0.10437012,0,0,0.10437012,0,0,0]'),
	(4, 'denitu semuta vodesu zusame regovo patomi pufido rufepa zokede podolu lerupa kanega latuta minure', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,-0.15698242,-0.036224365,0.036224365,0,-0.120788574,0,0,0,0,0.036224365,-0.036224365,0,0,0.036224365,0,0,0,0.036224365,-0.036224365,0.036224365,0.036224365,0,0,0.120788574,0.15698242,0,0,0.036224365,0,0.036224365,-0.036224365,0,0,-0.120788574,0.036224365,0.15698242,0,0.20532227,0,0,0.036224365,0,0,0,0,0.15698242,-0.036224365,-0.036224365,0.120788574,-0.07244873,0.036224365,0.036224365,-0.036224365,0,-0.036224365,0,-0.036224365,0,0,0.036224365,0,0,0,0,0.036224365,0.120788574,-0.08453369,0,0.036224365,0,-0.036224365,0,-0.036224365,0,0,0,0,-0.07244873,0,-0.036224365,-0.036224365,0.120788574,0.120788574,0,0,-0.036224365,0,0,0,-0.036224365,0,0,0,0,0]'),
	(5, 'meduga zoliru pefofo lepufa duzose dagufe bizine toture vezago napare bigudo beluni suleri razadu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0,0,0,0,0,0.040893555,-0.040893555,-0.040893555,0.040893555,-0.13635254,0,0,0,0,0.13635254,0,0,0.040893555,0,-0.13635254,0.040893555,-0.08178711,-0.040893555,-0.040893555,-0.040893555,0.040893555,0,0,0,0,-0.040893555,0,0,0,0.040893555,0,0,-0.27270508,0,0.08178711,0,0,0,0.040893555,0,0,0,0,0,-0.040893555,0.040893555,-0.040893555,-0.13635254,0.040893555,0,0,0,0.08178711,0,-0.040893555,0.13635254,0.040893555,-0.040893555,0,0,0,0,0.13635254,0,-0.13635254,0,0,0.040893555,0,-0.13635254,-0.040893555,0.040893555,0.040893555,0,0.08178711,0,0.040893555,-0.040893555,-0.040893555,0,0,0,-0.040893555,0,0,0,-0.040893555,0,-0.040893555]'),
	(6, 'duvome fadune zubero zalovo dinava mababa vepiko zaraba kedobo kofoki patomi rekavo galela zasava', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0,0,0,0,-0.03552246,0,0.11846924,0,0.10662842,0,0.11846924,0,0,-0.03552246,0,0,0.03552246,-0.03552246,0,-0.07104492,0,-0.11846924,-0.11846924,0,0.03552246,0,0,-0.03552246,-0.15405273,0,0,0,0.03552246,0.11846924,0.03552246,0.03552246,-0.11846924,0.03552246,0,0,0,0,-0.15405273,0,0.08294678,0,0,0,-0.03552246,0.15405273,-0.03552246,0,0,0,0.03552246,0,0,0,0,-0.03552246,0.03552246,0,-0.10662842,0,0.11846924,-0.11846924,-0.03552246,0,0,0,0,-0.03552246,-0.08294678,-0.1895752,0,-0.03552246,0,0.03552246,-0.03552246,0,0,0,0,0,0.03552246,0,0.03552246,-0.03552246,0,0,0,0.07104492,-0.07104492,0]'),
	(7, 'mabata saleru gakegu kufogi motave vetuti lezifu bakuva befori tirimi tozame baveto nubupi kufive', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0,0,0,0.07922363,-0.039611816,0.07922363,0.13195801,0,0.07922363,0,0,0,0.07922363,-0.039611816,0,0,0,0,0,0.039611816,0.13195801,0,0.039611816,0,0.05279541,0,-0.15844727,0.09240723,0,-0.09240723,0.13195801,0,0.039611816,0.07922363,0.13195801,-0.039611816,0,0,0,-0.039611816,0,0,0,0.07922363,0,0,0.07922363,0,0.039611816,0,0.09240723,0.039611816,0,0.21118164,0,0,-0.039611816,0,0,0,0.039611816,0.13195801,0.039611816,0,0.039611816,-0.07922363,0.13195801,0,0,0,0,0,0,0,0,-0.039611816,0,0,0,0,0,0.13195801,0,-0.039611816,-0.039611816,0,0,0,0.039611816,0,0,-0.039611816,-0.039611816,0]'),
	(8, 'zavonu zonamo tovare surubu ginano vurome nodomu kofimo vegabo reburu desoke rubabo medaru ligima', 'facts', '', '', 0.5, true, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, NULL),
	(9, 'masure nipani piniso rarodu rafizi mefola vopoko vebipu gupuna kusepu tedope gatafu deferi pesama', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0.07977295,0,0,0,0,0.039886475,0,0,-0.13293457,0.07977295,-0.039886475,0,0,0,0,0,0,0,0,-0.039886475,0,0,0,-0.039886475,0,0.039886475,0,-0.039886475,0,-0.13293457,-0.039886475,0,-0.039886475,0.039886475,0.039886475,-0.07977295,0.09301758,-0.039886475,-0.039886475,0,0.13293457,-0.039886475,0.13293457,-0.07977295,0,0.07977295,0,0,0,0.17285156,0.039886475,0,0.13293457,0,0.039886475,-0.039886475,0,-0.039886475,0,0,-0.07977295,-0.039886475,0,0.039886475,-0.039886475,0,-0.039886475,0.039886475,0,0,-0.039886475,0.13293457,0.039886475,0,-0.13293457,0.039886475,0.13293457,0,0.039886475,0,-0.09301758,-0.039886475,0,0,-0.07977295,0.039886475,0.039886475,0,-0.039886475,0.039886475,0,0,0.13293457,0]'),
	(10, 'tusagi pigovo deseko rideza ganida liruro purafo zigiti koluze sezefa fovele sadito nevise zaruvu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0.03869629,-0.16772461,-0.12902832,0,0.03869629,0.03869629,0,-0.12902832,0,0.12902832,0,0,0,0,-0.03869629,0,0.03869629,0,0,0.03869629,0,-0.03869629,0,0.03869629,0.12902832,0.07739258,-0.03869629,-0.051605225,0.07739258,0,-0.03869629,-0.03869629,0,0,-0.03869629,0,0.03869629,0,-0.03869629,0.03869629,-0.12902832,0.03869629,0,0.03869629,0,0,-0.03869629,0,-0.16772461,-0.09033203,-0.03869629,-0.07739258,0,0,0,-0.12902832,-0.07739258,-0.03869629,0,0,0,-0.03869629,0,-0.03869629,0.03869629,0,0,-0.03869629,0,0,0.03869629,0,0.03869629,0,0,-0.03869629,0.09033203,-0.03869629,0,-0.03869629,0,0,0.12902832,0,0,-0.03869629,0,0,0,0,-0.03869629,0.09033203,0.03869629,0,-0.16772461]'),
	(11, 'kefupo bamume mumeze bakalo gilisa sogota dusade zupupo kebaza fefipi tesega doreri voruza sedizo', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0,0,0.07244873,0,0.07244873,0,0.036224365,-0.120788574,0.036224365,0.036224365,-0.07244873,0.036224365,-0.07244873,0.036224365,-0.08453369,-0.07244873,0,-0.24157715,0,0,0,-0.120788574,0,0,-0.036224365,0.036224365,0,0,-0.036224365,0.036224365,0.120788574,0.036224365,0,0,0,0,-0.07244873,0.07244873,0.036224365,0,-0.036224365,0,0,0,0,0.08453369,0,-0.036224365,0,0,0,0,0,-0.120788574,0,0,0,0,0,0,0.15698242,-0.036224365,0,0.08453369,-0.036224365,0.036224365,0,0,-0.120788574,0.036224365,0,-0.08453369,0,0,0.036224365,-0.07244873,0.120788574,0.15698242,0,-0.036224365,0.036224365,0,-0.036224365,0.036224365,-0.036224365,0.036224365,0,0,0,0.036224365,0,0.036224365,0,0]'),
	(12, 'zovaro nidibe kegove medika fatete pozuku posuto venabi vapevu nilelu negane pubama sokudo vufavu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0.04046631,0,-0.1348877,0.04046631,0.1348877,0.04046631,0,0,0.1348877,0,0,0.04046631,0,0.04046631,0.04046631,-0.04046631,-0.04046631,-0.09442139,0.04046631,0,0.04046631,0,0,0,-0.04046631,0,0,0,-0.1348877,0,-0.04046631,-0.1348877,0,0,-0.04046631,0.04046631,-0.1348877,-0.04046631,0.04046631,0,0,0,0,0.22937012,0,0,0,0,-0.04046631,0.04046631,0,0,0,0,-0.1348877,0.04046631,-0.04046631,0.04046631,-0.04046631,-0.04046631,0,0,-0.04046631,-0.08093262,0.04046631,0.09442139,-0.04046631,0,0,0.053955078,0.04046631,0,0,0,0,0.09442139,0.04046631,0,0,0,0.04046631,0,0,0.08093262,0,0.04046631,0,0.04046631,0,-0.04046631,-0.1348877,0.08093262,0,0]'),
	(13, 'seguke gulale kozobu benepu pimuku fofelo vudoti muturu dekata desilu vegiti lurenu volifu kedomo', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,-0.18737793,0,0.070251465,0,0,0,0,-0.035125732,0.035125732,-0.11706543,0,0,0,0.23413086,0,0,0,0,0,-0.035125732,0.11706543,0,-0.035125732,0,0,0,0,0,0,0,0,0,0.035125732,0.035125732,0.035125732,0,0,-0.035125732,0.035125732,0,0,0,0,0.035125732,0,-0.18737793,0,0,-0.035125732,-0.035125732,0,0.105407715,0,0,0,0,-0.035125732,0,-0.035125732,-0.035125732,0,0,-0.035125732,-0.035125732,0,-0.070251465,0.035125732,0.035125732,0.11706543,0,0.11706543,0.035125732,0,0,0.035125732,0,-0.11706543,0.11706543,-0.11706543,0,0,0,0.081970215,0,0.035125732,-0.11706543,-0.035125732,0,0.035125732,-0.081970215,0,0.035125732,0,0]'),
	(14, 'losevu tibavo lepeli nesofe zenenu nukiga lumavi porimi gonike davari lulita dunune gemira mamefu', 'facts', '', '', 0.5, false, 'default', '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, NULL),
	(15, 'zubopi rugizi buvito retulo nuruda momebi luvugi zoseku duzeso vilave gafosa numeso vusifi reguvu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0.085998535,-0.036865234,0,0,-0.12286377,0,0.036865234,0,-0.036865234,0,0,-0.036865234,0,0,0,-0.11053467,0,0,0.07373047,-0.036865234,0,0,0,-0.036865234,0,0.036865234,0.036865234,-0.12286377,0,-0.036865234,-0.12286377,0,0.036865234,-0.036865234,-0.036865234,0.036865234,0,0,0.036865234,0,0,0.12286377,0.12286377,0,0,0,0,0,0,0,-0.036865234,0,0,0.12286377,0,0,0,0.036865234,0,0,0,0.036865234,0.036865234,0.036865234,0,0,0.085998535,0,0,0,0,0,-0.1965332,-0.036865234,-0.036865234,0,-0.036865234,0,-0.12286377,0.036865234,-0.036865234,0,0,0.085998535,0,0.036865234,0.036865234,0,0,0.12286377,0,-0.036865234,0.1965332,-0.15966797]'),
	(16, 'gisugi zamedi dumulo lasuve nitege sukazi zidara nusopu zepupa gapevi lugifu bonavu movape bizagu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,-0.09887695,-0.059326172,-0.15820312,0.059326172,-0.029663086,0,0,0,0.029663086,0,-0.32617188,0.029663086,-0.029663086,0,0,-0.09887695,-0.059326172,0.029663086,0.059326172,0,0,0,0,0,0,0.059326172,0,0.059326172,0,0,0.029663086,0,0,0,0,0.029663086,0,0,0.029663086,-0.029663086,-0.09887695,0,0,0.12854004,0.09887695,-0.09887695,-0.029663086,0,0,0.029663086,0.029663086,0,0.029663086,0,0.029663086,0.09887695,-0.09887695,0.059326172,0,-0.16809082,0.059326172,-0.029663086,-0.029663086,0,0,0,0,0,0,-0.059326172,0.059326172,0,-0.029663086,0,0,0,0.029663086,0,-0.029663086,0.029663086,-0.029663086,0.029663086,0,0,0,0,0,0.029663086,0,0,0,0,0,0]'),
	(17, 'gerage muzipa rekuda taruga rigivi pazobo zimapo gopili tazumi gonibo nivomu gunevu ketete giluzi', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,-0.12780762,-0.038360596,0,0.12780762,0,0,0.07672119,0,-0.038360596,0,0,-0.12780762,0.038360596,0,0,0,-0.038360596,-0.038360596,0,0,0,0.038360596,0,0,-0.038360596,0.07672119,0,-0.038360596,0.12780762,-0.038360596,0,0,0,-0.1661377,0,0,0,0.038360596,0.038360596,0,0,-0.038360596,0,0,0.038360596,0,0.038360596,0,-0.12780762,0,-0.07672119,0,0,-0.12780762,0,0.12780762,-0.038360596,0.08947754,0,0,0.038360596,0,-0.07672119,0,0.12780762,-0.07672119,0,0,0.038360596,-0.1661377,0.038360596,0,0,-0.038360596,0,0,-0.038360596,0,0,0,0.11505127,0,0,0,0,0,0.07672119,-0.038360596,-0.038360596,-0.07672119,-0.038360596,0,0,-0.12780762,-0.038360596]'),
	(18, 'bomuda nikire gafoke piboma poteli sotupo mibora kapite fagalu fagolu vivuze gekudu kizofo tetura', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0.066101074,-0.033050537,0,0.11016846,0.11016846,0,0.033050537,-0.0770874,0.033050537,0,0,0.033050537,0.033050537,-0.033050537,0,0,-0.033050537,0,0,0,0,0.033050537,-0.033050537,0,0,-0.11016846,0.066101074,-0.066101074,0,0,0,0,0,0.033050537,0.033050537,0,0.033050537,0.033050537,0,0,-0.033050537,0,0.033050537,0,-0.033050537,0.033050537,-0.033050537,0.11016846,0.033050537,0.11016846,0,0,0,0.11016846,0,0,-0.033050537,-0.033050537,0.11016846,0,0,0,0,-0.033050537,0,-0.066101074,0,-0.11016846,0,0.11016846,-0.033050537,0,-0.18725586,-0.033050537,0,0.033050537,0,0,0,0,0.066101074,0,0.033050537,0,0,0.066101074,0,0,-0.099121094,-0.28637695,0,0,-0.033050537,-0.033050537,0.033050537]'),
	(19, 'papuru kuvefe vidata bizudo zarezi lunavu kirapi darodi girepe pugevu venuvu salaki vabofe kalitu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,-0.038024902,0.12670898,0,0.12670898,-0.038024902,0,0,-0.12670898,0.12670898,0.038024902,0,0,0,-0.038024902,0.038024902,0,0,0.038024902,0.12670898,-0.038024902,0.038024902,-0.16479492,0,0,0,0.076049805,0.038024902,0.038024902,0,-0.038024902,-0.038024902,0,0,-0.12670898,0,0,0,0,0,0,0,0,-0.038024902,0.038024902,0.038024902,0,0,0,0,-0.12670898,0,-0.12670898,0,0,0,0,-0.16479492,0.038024902,-0.038024902,0.076049805,0.038024902,0,0,0.038024902,-0.038024902,0.08868408,-0.038024902,0.076049805,0,-0.038024902,0,0,0,0,0.038024902,0,0,0,0.12670898,-0.038024902,-0.038024902,0,0,0,0.038024902,-0.076049805,0,-0.12670898,-0.076049805,0.038024902,0,0,0.038024902,-0.08868408]'),
	(20, 'bukuvu nezife fagolu zuguni kalitu mefubi delifa losevu repeko vatubu gifubo fagolu viboki perefi', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0,-0.13757324,0.11462402,0,0.03439331,0.11462402,0,0,0.103149414,0,0,0,0,0.03439331,0,0,-0.06878662,0.03439331,0,-0.03439331,0.06878662,-0.18334961,0,0,0.03439331,-0.11462402,0.03439331,0,0,0.14904785,0,0,0,0,-0.11462402,-0.11462402,0,0.11462402,0,0.045837402,0,-0.03439331,0,0,0,0,0.22924805,0,-0.11462402,0,0.03439331,0.03439331,0,0,0.03439331,-0.06878662,-0.03439331,0,0,0,0,-0.03439331,0,0,0,-0.03439331,-0.03439331,0.03439331,0,0,0,0,-0.06878662,0,0,0,0,0,0.06878662,0,0,0,0,0,0.03439331,-0.11462402,-0.03439331,0,-0.06878662,0,-0.080200195,0,0,0]'),
	(21, 'lotizo diduge gupale sugoso zenobo rubudo regebe dagega turunu taseni gorore vigile zupelo torezi', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,-0.12902832,-0.03869629,-0.03869629,-0.09033203,-0.12902832,0.03869629,0,0,0,0.03869629,0,-0.03869629,-0.12902832,0,-0.12902832,0,0,0,0,0,0,0.03869629,0,0,0.03869629,-0.09033203,0.03869629,0.03869629,0,-0.1161499,0.1161499,0,0,0,-0.03869629,0,0.12902832,0,0.07739258,0.03869629,0,0,0,0,-0.03869629,0,0.03869629,0,0,-0.03869629,0.03869629,0,0.03869629,-0.07739258,0.03869629,-0.03869629,-0.12902832,0,0,-0.03869629,-0.12902832,0,0,0,0,0,0,0.12902832,0,0,0,0,0,0,0,-0.03869629,0,-0.12902832,0,0.03869629,0.07739258,-0.16772461,-0.12902832,0,0,-0.09033203,0,-0.03869629,-0.03869629,0,0,-0.03869629,0,0]'),
	(22, 'rufavu mubofo gomuzo sinupa datoki zurome taninu dimune gagagi domutu gerebi peditu bikuve vodunu', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,-0.035888672,0.035888672,0.0836792,0,0,0,0,0,0,0.035888672,0.035888672,0.035888672,-0.15539551,0,0,0.11956787,-0.11956787,-0.035888672,0,0,-0.035888672,0,0,0,0.11956787,0,-0.035888672,-0.035888672,-0.035888672,0,-0.071777344,0.035888672,0,0,0.035888672,0,0,-0.035888672,0,0.035888672,0,0,0,-0.11956787,0.035888672,0,0,-0.10760498,0,0,-0.035888672,-0.035888672,0,0,0,0,0.071777344,-0.10760498,0.035888672,-0.15539551,0,0,0,0,0,0,0,0,0.035888672,0,0,0,0,0,0.20324707,-0.11956787,0.035888672,0,-0.071777344,-0.035888672,-0.11956787,-0.035888672,0.11956787,0,0,0.035888672,0,-0.11956787,0,0,-0.071777344,0.035888672,0.11956787,0,0]'),
	(23, 'guniba femavu sudiba rozove fimoto fogigi padezo rafani vudola zivizo tovigu tagito dileri nedosa', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,0,0.034820557,0.034820557,0.034820557,-0.034820557,-0.034820557,0.06964111,0.1508789,0,0.034820557,0,0,0,0,0,0.1508789,0.034820557,0,0,0,0.2668457,0,0,0,0,0.034820557,0.034820557,0,0,0,0,0,0.034820557,0.034820557,-0.034820557,-0.034820557,0,0,-0.034820557,0.034820557,0.034820557,0,-0.034820557,0,0,0,-0.06964111,0,0,0.1508789,0,-0.034820557,-0.034820557,0.11602783,0,0,-0.034820557,-0.11602783,-0.11602783,-0.11602783,0,0.1508789,0,0,0.034820557,0,0,-0.034820557,0,0,0.034820557,0,0.11602783,0.06964111,0.034820557,0,0,0,0,0.034820557,0.06964111,-0.034820557,0,0,0.034820557,-0.034820557,0,0.034820557,0,0,0,-0.034820557,0.034820557,0.11602783,0]'),
	(24, 'gakimo tesibo totido kumodi tokeze migafa masure sidozu paloge lotuto kanubu godata mivitu bidiri', 'facts', '', '', 0.5, false, 'default', NULL, '2026-11-28 00:36:29.429515+00', '2026-11-28 00:36:29.429515+00', DEFAULT, '[0.8364258,-0.076049805,0,0,0,0,-0.038024902,-0.08868408,0,0.12670898,-0.08868408,0.12670898,0,0,0,0.12670898,-0.038024902,0,0,0,0,0,0,0,-0.16479492,0.038024902,0,0,0,0,-0.038024902,0,0,0.038024902,0.038024902,0,0.076049805,0.12670898,0,0,0,0,0.038024902,-0.038024902,-0.038024902,0,0,-0.038024902,0,0,0,0,0.038024902,0.076049805,-0.038024902,0,0,0,0,-0.038024902,0,0,0,-0.038024902,0.038024902,0,0.038024902,0.12670898,0.038024902,-0.08868408,0,0.076049805,-0.038024902,0.038024902,0.16479492,0,0,-0.12670898,-0.038024902,0.038024902,0,0.12670898,-0.16479492,-0.038024902,-0.038024902,0,0,0.076049805,0,0,-0.038024902,0.12670898,0.038024902,-0.038024902,0,0]');
INSERT INTO public.memory_index_alembic_version__memories VALUES
	('0001');
INSERT INTO public.memory_index_models OVERRIDING SYSTEM VALUE VALUES
	(1, 'first', NULL, 96, NULL, NULL, '', '', '2026-11-28 00:36:28.69958+00', NULL);
INSERT INTO public.memory_index_state VALUES
	(true, 'memories', 1, NULL, false, false, '2026-11-28 00:36:29.239265+00', 'public.memories', NULL, '{"columns": {}, "text_search_configuration": null}');
SELECT pg_catalog.setval('public.memories_id_seq', 24, true);
SELECT pg_catalog.setval('public.memory_index_models_id_seq', 1, true);
SELECT pg_catalog.setval('public.memory_index_swaps_id_seq', 1, false);
SELECT pg_catalog.setval('public.memory_supersessions_step_seq', 1, false);
ALTER TABLE ONLY public.memories
    ADD CONSTRAINT memories_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.memory_embedding_failures
    ADD CONSTRAINT memory_embedding_failures_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.memory_index_alembic_version__memories
    ADD CONSTRAINT memory_index_alembic_version__memories_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.memory_index_models
    ADD CONSTRAINT memory_index_models_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.memory_index_state
    ADD CONSTRAINT memory_index_state_pkey PRIMARY KEY (singleton);
ALTER TABLE ONLY public.memory_index_swaps
    ADD CONSTRAINT memory_index_swaps_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.memory_standby_failures
    ADD CONSTRAINT memory_standby_failures_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.memory_supersessions
    ADD CONSTRAINT memory_supersessions_pkey PRIMARY KEY (step);
ALTER TABLE ONLY public.memory_truncated_texts
    ADD CONSTRAINT memory_truncated_texts_pkey PRIMARY KEY (id, model);
CREATE INDEX idx_memories_embedding ON public.memories USING hnsw (embedding public.halfvec_cosine_ops) WITH (m='24', ef_construction='128');
CREATE INDEX idx_memories_embedding_pending ON public.memories USING btree (id) WHERE ((embedding IS NULL) AND ((NOT (is_sensitive IS NOT FALSE)) AND (deleted_at IS NULL)));
CREATE INDEX idx_memories_embedding_withheld ON public.memories USING btree (id) WHERE (NOT ((NOT (is_sensitive IS NOT FALSE)) AND (deleted_at IS NULL)));
CREATE INDEX idx_memories_search ON public.memories USING gin (search_vector);
CREATE INDEX idx_memories_updated ON public.memories USING btree (updated_at);
CREATE INDEX idx_memories_user ON public.memories USING btree (user_id);
CREATE UNIQUE INDEX memory_index_swaps_one_open ON public.memory_index_swaps USING btree ((true)) WHERE (stage = ANY (ARRAY['planned'::text, 'filling'::text, 'indexing'::text, 'gating'::text, 'ready'::text, 'refused'::text]));
CREATE UNIQUE INDEX memory_supersessions_current ON public.memory_supersessions USING btree (id) WHERE (undone_at IS NULL);
CREATE INDEX memory_supersessions_successor ON public.memory_supersessions USING btree (superseded_by) WHERE (undone_at IS NULL);
CREATE TRIGGER zz_memory_index_delete AFTER DELETE ON public.memories REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.memory_index_forget();
ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_delete;
CREATE TRIGGER zz_memory_index_direction BEFORE INSERT OR UPDATE OF embedding ON public.memories FOR EACH ROW WHEN ((new.embedding IS NOT NULL)) EXECUTE FUNCTION public.memory_index_direction();
ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_direction;
CREATE TRIGGER zz_memory_index_insert BEFORE INSERT ON public.memories FOR EACH ROW EXECUTE FUNCTION public.memory_index_guard();
ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_insert;
CREATE TRIGGER zz_memory_index_truncate AFTER TRUNCATE ON public.memories FOR EACH STATEMENT EXECUTE FUNCTION public.memory_index_forget_all();
ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_truncate;
CREATE TRIGGER zz_memory_index_update BEFORE UPDATE ON public.memories FOR EACH ROW WHEN (((new.embedding IS NULL) OR (NOT ((NOT (new.is_sensitive IS NOT FALSE)) AND (new.deleted_at IS NULL))) OR (new.content IS DISTINCT FROM old.content) OR (new.id IS DISTINCT FROM old.id))) EXECUTE FUNCTION public.memory_index_guard();
ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_update;
ALTER TABLE ONLY public.memory_index_state
    ADD CONSTRAINT memory_index_state_active_model_fkey FOREIGN KEY (active_model) REFERENCES public.memory_index_models(id);
ALTER TABLE ONLY public.memory_index_state
    ADD CONSTRAINT memory_index_state_next_model_fkey FOREIGN KEY (next_model) REFERENCES public.memory_index_models(id);
ALTER TABLE ONLY public.memory_index_swaps
    ADD CONSTRAINT memory_index_swaps_from_model_fkey FOREIGN KEY (from_model) REFERENCES public.memory_index_models(id);
ALTER TABLE ONLY public.memory_index_swaps
    ADD CONSTRAINT memory_index_swaps_to_model_fkey FOREIGN KEY (to_model) REFERENCES public.memory_index_models(id);
