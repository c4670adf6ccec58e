;;; midfill-next-edit.el --- Next edits from midfill's language server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Where the server's setting `nextEditModel' names a model, `midfill-mode' also offers next edits: while you rest, what
;; goes is marked, and what comes is shown.  Tab jumps to the edit, and applies it where the cursor is there already;
;; Escape or C-g refuses it.

;;; Code:

(require 'diff-mode) ; its faces
(require 'midfill)

(defcustom midfill-next-edit-delay 0.3
  "Seconds without a command after which a next edit is asked for."
  :type 'number :group 'midfill)

(defface midfill-edit-old
  '((((supports :strike-through t)) :inherit diff-removed :strike-through t)
    (t :inherit diff-removed :underline t)) ; most terminals cannot strike out
  "Face of text that a next edit removes." :group 'midfill)
(defface midfill-edit-new '((t :inherit diff-added)) "Face of text that a next edit inserts." :group 'midfill)

(defconst midfill-next-edit--selection-seconds 5 "For so long after a selection of several lines nothing is asked.")

(defvar-local midfill-next-edit--shown nil "The edit that is shown, as (EDIT BEGIN END TICK).
TICK is the buffer's when it was shown: a timer or process may change the text later.")
(defvar-local midfill-next-edit--overlays nil "The overlays that show it.")
(defvar-local midfill-next-edit--seen nil "What `midfill--here' was after the last command.")
(defvar-local midfill-next-edit--selected nil "When several lines were selected last.")
(defvar midfill-next-edit--timer nil "The timer that asks.")

(defvar midfill-edit-map
  (let ((map (make-sparse-keymap)))
    (define-key map [tab] #'midfill-go-to-edit)
    (define-key map (kbd "TAB") #'midfill-go-to-edit)
    (define-key map [escape] #'midfill-refuse-edit)
    (define-key map (kbd "C-g") #'midfill-refuse-edit)
    map)
  "Keys while a next edit is shown.")

(define-minor-mode midfill-edit-mode
  "The keys of a next edit that is shown; `midfill-mode' switches it."
  :keymap midfill-edit-map)

;;; When

(defun midfill-next-edit--selects-lines-p ()
  "Whether several lines are selected."
  (and (use-region-p) (/= (line-number-at-pos (region-beginning)) (line-number-at-pos (region-end)))))

(defun midfill-next-edit--busy-p ()
  "Whether the user is in the middle of something that an edit would disturb."
  (or buffer-read-only midfill--item completion-in-region-mode (use-region-p) (midfill--repeated-p)
      (bound-and-true-p company-candidates)
      (and (fboundp 'yas-active-snippets) (yas-active-snippets))
      (and midfill-next-edit--selected
           (< (- (float-time) midfill-next-edit--selected) midfill-next-edit--selection-seconds))))

(defun midfill-next-edit--ask (kind)
  "Ask for a next edit: KIND is 1 if the user asks, otherwise 2."
  (when (and midfill--open (seq-contains-p midfill--commands "midfill.nextEditAccepted")
             (not (and (= kind 2) (midfill-next-edit--busy-p))))
    (let ((buffer (current-buffer)) (place (midfill--here)))
      (midfill--request
       :textDocument/copilotInlineEdit
       (list :textDocument (list :uri midfill--open :version midfill--version)
             :position (midfill--position (point)) :context (list :triggerKind kind))
       (lambda (answer)
         (when (buffer-live-p buffer)
           (with-current-buffer buffer
             (when (and midfill-mode (equal place (midfill--here)))
               (midfill-next-edit--hide)
               (unless (or (midfill-next-edit--busy-p) (seq-empty-p (plist-get answer :edits)))
                 (let ((edit (elt (plist-get answer :edits) 0)))
                   (when (apply #'midfill-next-edit--reachable-p (midfill-next-edit--ends edit))
                     (midfill-next-edit--show edit))))))))))))

(defun midfill-next-edit--ask-in (buffer)
  "Ask in BUFFER, if the user is still there."
  (when (and (buffer-live-p buffer) (eq buffer (window-buffer)))
    (with-current-buffer buffer
      (when (and midfill-mode midfill-automatic) (midfill-next-edit--ask 2)))))

(defun midfill-next-edit--after-command ()
  "Hide an edit that an edit of the user or another window has left behind, and ask at rest."
  (when (midfill-next-edit--selects-lines-p) (setq midfill-next-edit--selected (float-time)))
  (let ((seen (midfill--here)))
    (unless (equal seen midfill-next-edit--seen)
      (unless (equal (butlast seen) (butlast midfill-next-edit--seen)) (midfill-next-edit--hide))
      (setq midfill-next-edit--seen seen)
      (when midfill-next-edit--timer (cancel-timer midfill-next-edit--timer))
      (setq midfill-next-edit--timer
            (run-with-timer midfill-next-edit-delay nil #'midfill-next-edit--ask-in (current-buffer))))))

;;; What

(defun midfill-next-edit--hide ()
  "Hide the edit; the server keeps it while it holds."
  (mapc #'delete-overlay midfill-next-edit--overlays)
  (setq midfill-next-edit--shown nil midfill-next-edit--overlays nil)
  (when midfill-edit-mode (midfill-edit-mode -1)))

(defun midfill-next-edit--mark (begin end &rest properties)
  "Show PROPERTIES from BEGIN to END, in the user's window."
  (let ((overlay (make-overlay begin end)))
    (overlay-put overlay 'window (get-buffer-window))
    (while properties (overlay-put overlay (pop properties) (pop properties)))
    (push overlay midfill-next-edit--overlays)))

(defun midfill-next-edit--ends (edit)
  "Where EDIT, or a part of one, begins and ends."
  (let ((range (plist-get edit :range)))
    (list (midfill--place (plist-get range :start)) (midfill--place (plist-get range :end)))))

(defun midfill-next-edit--reachable-p (begin end)
  "Whether the text from BEGIN to END is within the narrowed one."
  (<= (point-min) begin end (point-max)))

(defun midfill-next-edit--show (edit)
  "Show EDIT."
  (setq midfill-next-edit--shown (append (list edit) (midfill-next-edit--ends edit) (list (buffer-chars-modified-tick))))
  (seq-doseq (part (plist-get edit :parts))
    (pcase-let ((`(,begin ,end) (midfill-next-edit--ends part)))
      (unless (= begin end) (midfill-next-edit--mark begin end 'face 'midfill-edit-old))
      (midfill-next-edit--mark end end 'after-string (propertize (plist-get part :text) 'face 'midfill-edit-new))))
  (let ((begin (nth 1 midfill-next-edit--shown)))
    (when (or (invisible-p begin) (not (pos-visible-in-window-p begin)))
      (midfill-next-edit--mark
       (line-end-position) (line-end-position) 'midfill-note t 'after-string
       (propertize (format "  next edit in line %d" (line-number-at-pos begin t)) 'face 'midfill-ghost))))
  (midfill-edit-mode 1)
  (midfill--notify :textDocument/didShowInlineEdit :item (list :command (plist-get edit :command))))

(defun midfill-next-edit--tell (command)
  "Hide the edit, and run COMMAND of the server on it."
  (let ((arguments (plist-get (plist-get (car midfill-next-edit--shown) :command) :arguments)))
    (midfill-next-edit--hide)
    (midfill--request :workspace/executeCommand (list :command command :arguments arguments))))

(defun midfill-go-to-edit ()
  "Jump to the next edit, or apply it if the cursor is in its lines."
  (interactive)
  (pcase-let ((`(,edit ,begin ,end ,tick) midfill-next-edit--shown))
    (cond ((not edit) nil)
          ((not (and (= tick (buffer-chars-modified-tick)) (midfill-next-edit--reachable-p begin end)))
           (midfill-next-edit--hide))
          ((<= (save-excursion (goto-char begin) (line-beginning-position)) (point)
               (save-excursion (goto-char end) (line-end-position)))
           (undo-boundary)
           (let* ((parts (plist-get edit :parts))
                  (changed (if (seq-empty-p parts) edit (seq-elt parts (1- (length parts))))) ; in whole words, which EDIT is not
                  (behind (- (buffer-size) (cadr (midfill-next-edit--ends changed)))))
             (combine-change-calls begin end ; one change for the server
               (goto-char begin)
               (delete-region begin end)
               (insert (plist-get edit :text)))
             (goto-char (- (buffer-size) behind)))
           (midfill-next-edit--tell "midfill.nextEditAccepted"))
          (t (push-mark nil t)
             (goto-char begin)
             (dolist (overlay (overlays-at begin))
               (when-let ((open (overlay-get overlay 'isearch-open-invisible))) (funcall open overlay)))
             (remove-overlays (point-min) (point-max) 'midfill-note t)))))

(defun midfill-refuse-edit ()
  "Hide the next edit; nothing like it is offered again."
  (interactive)
  (when midfill-next-edit--shown (midfill-next-edit--tell "midfill.nextEditRefused")))

(defun midfill-ask-edit ()
  "Ask for a next edit now."
  (interactive)
  (midfill-next-edit--ask 1))

;;; Where

(defun midfill-next-edit--follow ()
  "Offer next edits while `midfill-mode' is on."
  (midfill-next-edit--hide)
  (setq midfill-next-edit--seen (midfill--here))
  (if midfill-mode
      (progn
        (add-hook 'post-command-hook #'midfill-next-edit--after-command t t)
        (add-hook 'change-major-mode-hook #'midfill-next-edit--hide nil t))
    (remove-hook 'post-command-hook #'midfill-next-edit--after-command t)
    (remove-hook 'change-major-mode-hook #'midfill-next-edit--hide t)))

(add-hook 'midfill-mode-hook #'midfill-next-edit--follow)
(add-hook 'midfill-ghost-mode-hook (lambda () (when midfill-ghost-mode (midfill-next-edit--hide)))) ; never beside it

(provide 'midfill-next-edit)
;;; midfill-next-edit.el ends here
